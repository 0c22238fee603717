r"""Descent over boundaries and recompute of every layer at once, in many starts, with gradients by hand (NumPy).

Variables are those of `problem.LayeredProblem.decode` but the microbatch, through a logistic curve: a weight for each
stage, whose running sums are boundaries $c_s$ between layers, and a number for each layer between its modes. A stage
holds of layer $l$ what of $[l, l + 1)$ lies between its boundaries. The passes are the longest of the chains of
`staged.paths` (a soft maximum, sharper from step to step); memory beyond the limit costs more and more.

Reverse mode by hand is some 60 lines and starts at once; a compiler would need seconds for a program that runs one.
"""

from typing import NamedTuple

import numpy as np

from costmodel.graph import MODES, paths
from optimize.layers.tables import Linear, Tables, peak_and_slopes

STARTS, STEPS, RATE = 12, 150, 0.15
SOFTNESS = (1e-2, 1e-4)  # of the maximum over chains, relative to its value
PENALTY = (1.0, 100.0)  # of each share of the memory that is missing, relative to the step


EVALUATIONS = STARTS * (STEPS + 1)

Point = tuple[np.ndarray, np.ndarray]
"""Logits of a batch of starts: of the stages' weights (start, stage) and of the layers' modes (start, layer)."""


class Held(NamedTuple):
    """What the logits mean, with what their derivatives need."""

    edges: np.ndarray  # (start, stage + 1)
    shares: np.ndarray  # (start, stage, layer)
    mixes: np.ndarray  # (start, layer, mode)
    layers: np.ndarray  # (start, stage, kind, mode)


def descend(relaxed: "Relaxed", seed: int) -> tuple[np.ndarray, list[float]]:
    """Boundaries of each start, rounded, best relaxed value first, by Adam at one microbatch; and from step to step the
    least penalised relaxed step of all starts.
    """
    rng = np.random.default_rng(seed)
    shapes = (STARTS, relaxed.table.stages), (STARTS, len(relaxed.kinds))
    point = 0.3 * rng.standard_normal(shapes[0]), rng.uniform(-4, 4, (STARTS, 1)) + np.zeros(shapes[1])
    mean, square = ([np.zeros_like(part) for part in point] for _ in range(2))
    trajectory: list[float] = []
    for step in range(STEPS):
        done = step / (STEPS - 1)
        value, slopes = relaxed.gradient(point, _between(SOFTNESS, done), _between(PENALTY, done))
        trajectory.append(float(np.exp(value.min())))
        rate = RATE * 0.5 * (1 + np.cos(np.pi * done))
        moved = []
        for part, slope, first, second in zip(point, slopes, mean, square, strict=True):
            first += 0.1 * (slope - first)
            second += 0.01 * (slope**2 - second)
            fair = first / (1 - 0.9 ** (step + 1)), second / (1 - 0.99 ** (step + 1))
            moved.append(part - rate * fair[0] / (np.sqrt(fair[1]) + 1e-12))
        point = moved[0], moved[1]
    value, _ = relaxed.gradient(point, SOFTNESS[1], PENALTY[1])
    trajectory.append(float(np.exp(value.min())))
    edges = np.rint(relaxed.held(point).edges).astype(int)
    return edges[np.argsort(value)], trajectory


def _between(ends: tuple[float, float], done: float) -> float:
    return float(ends[0] * (ends[1] / ends[0]) ** done)


class Relaxed:
    """The logarithm of the penalised step as a function of logits, and its gradient."""

    def __init__(self, table: Tables, kind_of_layer: np.ndarray, limit_bytes: float, allowed: tuple[int, ...]) -> None:
        self.table, self.limit_bytes, self.allowed = table, limit_bytes, allowed
        chains = paths(table.stages, table.microbatches)
        hop = self.table.hop
        self.forward = np.array([chain.forward for chain in chains], dtype=float)
        self.backward = np.array([chain.backward for chain in chains], dtype=float)
        self.hops_s = np.array([chain.lone * hop.ends_s + chain.steady * hop.steady_s for chain in chains])
        self.kinds = np.eye(int(kind_of_layer.max()) + 1)[kind_of_layer]  # (layer, kind)

    def held(self, point: Point) -> Held:
        """Fractions of layers on every stage."""
        p, count, names = self.table.stages, len(self.kinds), len(self.allowed)
        weights, modes = map(_logistic, point)
        sums = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
        edges = np.concatenate([np.zeros_like(sums[:, :1]), np.arange(1, p + 1) + (count - p) * sums], axis=1)
        begun = np.clip(edges[:, :, None] - np.arange(count), 0.0, 1.0)
        shares = np.diff(begun, axis=1)
        place = np.clip(modes * names - 0.5, 0.0, names - 1.0)
        mixes = np.zeros((*place.shape, len(MODES)))
        mixes[..., list(self.allowed)] = np.maximum(0.0, 1 - np.abs(place[..., None] - np.arange(names)))
        layers = np.einsum("bsl,lk,blm->bskm", shares, self.kinds, mixes, optimize=True)
        return Held(edges, shares, mixes, layers)

    def gradient(self, point: Point, softness: float, penalty: float) -> tuple[np.ndarray, Point]:
        """Logarithms of the penalised step (start,), and their derivatives by the logits."""
        held = self.held(point)
        step_s, by_layers = self._step(held.layers, softness)
        peak, peak_slopes = peak_and_slopes(self.table, held.layers)
        over = peak / self.limit_bytes - 1
        value = np.log(step_s) + penalty * np.maximum(over, 0.0).sum(axis=1)
        wanted = by_layers / step_s[:, None, None, None]
        wanted += (penalty / self.limit_bytes) * (over > 0)[..., None, None] * peak_slopes
        return value, self._to_logits(point, held, wanted)

    def _step(self, layers: np.ndarray, softness: float) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of a step and derivatives by layers (start, stage, kind, mode)."""
        table = self.table
        forward, backward = (table.linear[name].of(layers) for name in ("forward_s", "backward_s"))
        chains_s = forward @ self.forward.T + backward @ self.backward.T + self.hops_s
        passes_s, chosen = _soft_maximum(chains_s, softness)
        ending_s, chosen_end, exposed = self._ending(layers, forward, backward)
        times = table.given.times[0]
        by_seconds = -times.hide.data * exposed  # of one microbatch on each stage, which hides gradient traffic
        by_traffic = exposed + times.contention * chosen_end
        slopes = (
            _scaled(table.linear["forward_s"], chosen @ self.forward + by_seconds)
            + _scaled(table.linear["backward_s"], chosen @ self.backward + by_seconds)
            + _scaled(table.linear["traffic_s"], by_traffic)
            + _scaled(table.linear["update_s"], chosen_end)
        )
        return passes_s + ending_s + table.host_s, slopes

    def _ending(self, layers: np.ndarray, forward: np.ndarray, backward: np.ndarray) -> tuple[np.ndarray, ...]:
        """What follows the passes, which stage sets it, and what of its gradient traffic is exposed for want of time
        to hide it."""
        times, linear = self.table.given.times[0], self.table.linear
        traffic_s, update_s = linear["traffic_s"].of(layers), linear["update_s"].of(layers)
        beyond = traffic_s - times.hide.data * (forward + backward)
        ending = (1 - times.contention) * np.maximum(beyond, 0.0) + times.contention * traffic_s + update_s
        chosen = np.eye(ending.shape[1])[ending.argmax(axis=1)]
        return ending.max(axis=1), chosen, chosen * (1 - times.contention) * (beyond > 0)

    def _to_logits(self, point: Point, held: Held, wanted: np.ndarray) -> Point:
        """Chain rule from layers by stage, kind and mode back to the logits."""
        p, count, names = self.table.stages, len(self.kinds), len(self.allowed)
        own = np.einsum("bskm,lk->bslm", wanted, self.kinds, optimize=True)
        by_shares = np.einsum("bslm,blm->bsl", own, held.mixes)
        by_mixes = np.einsum("bslm,bsl->blm", own, held.shares)[..., list(self.allowed)]
        inside = (held.edges[:, 1:-1, None] > np.arange(count)) & (held.edges[:, 1:-1, None] < np.arange(1, count + 1))
        by_edges = (inside * (by_shares[:, :-1] - by_shares[:, 1:])).sum(axis=2)
        weights, modes = map(_logistic, point)
        whole = weights.sum(axis=1, keepdims=True)
        later = np.concatenate([by_edges[:, ::-1].cumsum(axis=1)[:, ::-1], np.zeros((len(weights), 1))], axis=1)
        sums = np.cumsum(weights, axis=1)[:, :-1] / whole
        by_weights = (count - p) * (later - (by_edges * sums).sum(axis=1, keepdims=True)) / whole
        place = modes * names - 0.5
        below = np.clip(np.floor(place).astype(int), 0, max(names - 2, 0))
        above = np.minimum(below + 1, names - 1)
        rise = np.take_along_axis(by_mixes, above[..., None], 2) - np.take_along_axis(by_mixes, below[..., None], 2)
        free = (place > 0) & (place < names - 1)
        return by_weights * weights * (1 - weights), rise[..., 0] * free * names * modes * (1 - modes)


def _scaled(linear: Linear, by_stage: np.ndarray) -> np.ndarray:
    return by_stage[:, :, None, None] * linear.slope


def _soft_maximum(values: np.ndarray, softness: float) -> tuple[np.ndarray, np.ndarray]:
    """Along the last axis, never below the maximum, with its derivatives; `softness` is relative to the maximum."""
    most = values.max(axis=-1, keepdims=True)
    powers = np.exp((values / most - 1) / softness)
    whole = powers.sum(axis=-1, keepdims=True)
    logarithm = np.log(whole)
    first = (values == most) / (values == most).sum(axis=-1, keepdims=True)
    scale_slope = 1 + softness * logarithm - (powers * values).sum(axis=-1, keepdims=True) / (whole * most)
    return (most * (1 + softness * logarithm))[..., 0], powers / whole + first * scale_slope


def _logistic(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))
