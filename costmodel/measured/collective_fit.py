r"""Fit the collective part of a `Stack` to measured collectives, with the laws of `collectives.py` and nothing else.

Least squares on the logarithm of time, with a loss that hardly grows for outliers (changes of protocol make steps of
tens of percent in places), and a pull of weight `PULL` towards the stack of the cluster, which decides what the rows
leave open: rows of one group size cannot tell the start of a call from its hops. Deterministic: the best of a few
starts, no random numbers.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from costmodel.exact import Exact
from costmodel.formulas import Law, collectives, ranks_by_tier
from costmodel.inputs import Cluster, Stack
from costmodel.specs import CollectiveRow

LAWS: dict[str, Callable[..., Law]] = {
    "all_reduce": collectives.all_reduce,
    "all_gather": collectives.all_gather,
    "reduce_scatter": collectives.all_gather,
    "all_to_all": collectives.all_to_all,
    "neighbour": collectives.neighbour,
}
FIELDS = (
    "link_ceiling", "network_ceiling", "peer_ceiling", "collective_s", "tree_hop", "network_hop", "collective_ramp"
)  # fmt: skip
PULL = 0.02  # per unit of a logarithm, beside residuals that are logarithms too
KNEE = 0.1  # residuals above it count by their logarithm, not by their square
_RAMPS = (0.0, 0.5, 2.0, 6.0)  # starts: with outliers forgiven there are local minima
_RANGES = {
    "link_ceiling": (0.01, 1.0),
    "network_ceiling": (0.01, 1.0),
    "peer_ceiling": (0.01, 1.0),
    "collective_s": (1e-9, 1.0),
    "tree_hop": (1e-3, 1e4),
    "network_hop": (1e-3, 1e4),
}  # logarithmic
_SHARES = {"collective_ramp": (0.0, 100.0), "chunk_fill": (0.0, 1.0)}  # linear: may be zero
_SEM = Exact(np)


def fit_collectives(rows: Sequence[CollectiveRow], cluster: Cluster, fields: Sequence[str] = FIELDS) -> Stack:
    """The cluster's stack with `fields` fitted to `rows`."""
    from scipy.optimize import least_squares

    start = np.array([_to_free(name, getattr(cluster.stack, name)) for name in fields])
    low, high = np.array([[_to_free(name, end) for end in _range(name)] for name in fields]).T
    start = np.clip(start, low, high)
    measured = np.log([row.time_s for row in rows])

    def residuals(free: np.ndarray) -> np.ndarray:
        stack = _with_free(cluster.stack, fields, free)
        return np.concatenate([np.log(times_s(rows, cluster, stack)) - measured, PULL * (free - start)])

    fits = [
        least_squares(residuals, at, bounds=(low, high), loss="cauchy", f_scale=KNEE)
        for at in _starts(start, list(fields))
    ]
    return _with_free(cluster.stack, fields, min(fits, key=lambda result: result.cost).x)


def times_s(rows: Sequence[CollectiveRow], cluster: Cluster, stack: Stack) -> np.ndarray:
    """Seconds that the laws give for each row."""
    ops = np.array([row.op for row in rows])
    payload, ranks = (np.array([getattr(row, name) for row in rows], float) for name in ("payload_bytes", "ranks"))
    domain = np.array([row.domain for row in rows], float)
    domain = np.where(domain > 0, domain, cluster.tiers[0].usable_size)
    result = np.empty(len(rows))
    for op in dict.fromkeys(ops):
        at = ops == op
        placed = ranks_by_tier(ranks[at], 1.0, cluster.tiers, domain[at], _SEM)
        result[at] = collectives.time_s(LAWS[op](placed, cluster.tiers, stack, _SEM), payload[at], _SEM)
    return result


def log_errors(rows: Sequence[CollectiveRow], cluster: Cluster, stack: Stack) -> np.ndarray:
    """log(predicted / measured) of each row."""
    return np.log(times_s(rows, cluster, stack)) - np.log([row.time_s for row in rows])


def _starts(start: np.ndarray, fields: list[str]) -> list[np.ndarray]:
    if "collective_ramp" not in fields:
        return [start]
    ramp = np.array(fields) == "collective_ramp"
    return [np.where(ramp, value, start) for value in _RAMPS]


def _range(name: str) -> tuple[float, float]:
    return _RANGES[name] if name in _RANGES else _SHARES[name]


def _to_free(name: str, value: float) -> float:
    return float(np.log(max(value, 1e-12))) if name in _RANGES else value


def _with_free(stack: Stack, fields: Sequence[str], free: np.ndarray) -> Stack:
    values = {n: float(np.exp(x) if n in _RANGES else x) for n, x in zip(fields, free, strict=True)}
    return dataclasses.replace(stack, **values)
