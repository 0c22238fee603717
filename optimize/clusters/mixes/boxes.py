r"""Boxes of shared hardware at one count, bounded by planes: thousands at once, without the cost model.

At a fixed plan the logarithm of the seconds (or of what they are worth, with the memory that the plan needs) is convex
in $y$, the logarithms of the rates, so every tangent is a plane below it, and the highest of a plan's planes counts. In
a box of $y$ with middle $c$ and half widths $r$, for any slope
$m_j$, with $\ell_{jp}$ the planes of job $j$:

$$\min_p \ell_{jp}(y) \ge b_j + m_j \cdot (y - c), \qquad b_j = \min_p \big[\ell_{jp}(c) - |g_{jp} - m_j| \cdot r\big]$$

and with the shares $s \propto e^{b}$ (Jensen) the logarithm of the sum over jobs is at least $\log \sum_j e^{b_j} +
\sum_j s_j m_j \cdot (y - c)$: one plane for the whole mix, whose least value over the box, money and watts is bounded
by `hardware.dual_bound`. Bytes of HBM are a fifth side of the box: the least is paid, plans that need more than the
most are left out.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from optimize.hardware import dual_bound
from optimize.question import Left, Objective, Problem, Tangents

AT_ONCE = 128  # boxes


@dataclasses.dataclass
class Planes:
    """Planes below the logarithms of the weighted seconds of plans of one job, those of a plan together.

    `value` is at the logarithms of the rates zero.
    """

    plan: np.ndarray  # ascending
    value: np.ndarray
    slopes: np.ndarray
    need: np.ndarray  # bytes of each plan

    @property
    def starts(self) -> np.ndarray:
        """The first plane of each plan."""
        return np.searchsorted(self.plan, np.arange(len(self.need)))

    def add(self, plan: np.ndarray, at: Tangents) -> None:
        """More planes of some plans."""
        value = at.log_value - (at.slopes * at.y).sum(-1)
        plan = np.concatenate([self.plan, plan])
        order = np.argsort(plan, kind="stable")
        self.plan, self.value = plan[order], np.concatenate([self.value, value])[order]
        self.slopes = np.concatenate([self.slopes, at.slopes])[order]


class Boxes(NamedTuple):
    """Boxes of rates (logarithms) and of HBM bytes, with bounds: logarithms of the minimised value."""

    low: np.ndarray
    high: np.ndarray
    least_bytes: np.ndarray
    most_bytes: np.ndarray
    log_bound: np.ndarray
    apart: np.ndarray  # by side, what is lost to it

    def take(self, chosen: np.ndarray) -> "Boxes":
        """Some of them."""
        return Boxes(*(column[chosen] for column in self))


def joined(parts: list[Boxes]) -> Boxes:
    """All in one."""
    return Boxes(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def everything(problem: Problem) -> Boxes:
    """All hardware that is offered."""
    low, high = (end[None] for end in problem.ends)
    most = np.array([problem.most_hbm_bytes])
    return Boxes(low, high, np.zeros(1), most, np.full(1, -np.inf), np.ones((1, 5)))


def bounded(problem: Problem, count: int, jobs: list[Planes], boxes: Boxes) -> Boxes:
    """Boxes with their bounds raised; what the limits do not allow is cut off, empty ones have an infinite bound."""
    boxes = _cut(problem, count, jobs, boxes)
    have = _left(problem, count, boxes)
    middle, half = 0.5 * (boxes.low + boxes.high), 0.5 * (boxes.high - boxes.low)
    parts = [_of_job(planes, boxes.most_bytes, middle, half) for planes in jobs]
    b = np.stack([part[0] for part in parts], axis=-1)
    empty = ~np.isfinite(b).all(axis=-1) | (have.usd <= 0) | (half < 0).any(axis=-1)
    b = np.where(empty[:, None], 0.0, b)
    top = b.max(axis=-1, keepdims=True)
    shares = np.exp(b - top)
    log_sum = top[:, 0] + np.log(shares.sum(-1))
    shares = shares / shares.sum(-1, keepdims=True)
    slopes = np.einsum("nj,njk->nk", shares, np.stack([part[1] for part in parts], axis=1))
    apart = np.einsum("nj,njk->nk", shares, np.stack([part[2] for part in parts], axis=1))
    mean = Tangents(log_sum, slopes, middle, have.usd, have.usd)
    low, high = np.minimum(boxes.low, middle), np.maximum(boxes.high, middle)
    plain = dataclasses.replace(problem, objective=Objective.time)  # what hardware costs is in the planes
    value, _ = dual_bound(plain, have, mean, (low, high))
    value = value + problem.log_scale + (0.0 if problem.fill else np.log(count))
    value = np.where(empty, np.inf, np.maximum(value, boxes.log_bound))
    memory = _memory_apart(problem, count, boxes, slopes)
    return boxes._replace(log_bound=value, apart=np.concatenate([apart, memory[:, None]], axis=1))


def _left(problem: Problem, count: int, boxes: Boxes) -> Left:
    return problem.money.left(problem.limits, np.full(len(boxes.low), float(count)), boxes.least_bytes)


def _cut(problem: Problem, count: int, jobs: list[Planes], boxes: Boxes) -> Boxes:
    """Less memory than some job needs is of no use, nor is more than any; rates that the least of others leave."""
    least, most = boxes.least_bytes, np.zeros(len(boxes.low))
    for planes in jobs:
        need = np.sort(planes.need)
        place = np.searchsorted(need, boxes.most_bytes, side="right")
        least = np.maximum(least, need[0] if len(need) else np.inf)
        most = np.maximum(most, np.where(place > 0, need[np.maximum(place - 1, 0)], 0.0))
    boxes = boxes._replace(least_bytes=least, most_bytes=np.minimum(boxes.most_bytes, most))
    have = _left(problem, count, boxes)
    high = boxes.high
    spare = [limit - law(boxes.low) for limit, law in ((have.usd, problem.money.usd), (have.watt, problem.money.watt))]
    for left, law in zip(spare, (problem.money.usd, problem.money.watt), strict=True):
        terms = law.terms(boxes.low) + left[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            alone = np.log(np.maximum(terms, 1e-300) / law.amounts) / law.exponents
        high = np.where(law.amounts > 0, np.minimum(high, alone), high)
    return boxes._replace(high=high)


def _of_job(
    planes: Planes, most_bytes: np.ndarray, middle: np.ndarray, half: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By box: b of a job, its slope m, and what is lost to each rate at the plan that is least."""
    starts, n = planes.starts, np.arange(len(middle))
    allowed = planes.need <= most_bytes[:, None]
    at_middle = planes.value + middle @ planes.slopes.T
    highest = np.where(allowed, np.maximum.reduceat(at_middle, starts, axis=1), np.inf)
    first = highest.argmin(axis=1)
    active = (planes.plan == first[:, None]) & (at_middle >= highest[n, first][:, None])
    slope = planes.slopes[active.argmax(axis=1)]
    lost = np.zeros_like(at_middle)
    for k in range(middle.shape[1]):
        lost += np.abs(planes.slopes[:, k] - slope[:, k, None]) * half[:, k, None]
    below = np.where(allowed, np.maximum.reduceat(at_middle - lost, starts, axis=1), np.inf)
    least = below.argmin(axis=1)
    reached = (planes.plan == least[:, None]) & (at_middle - lost >= below[n, least][:, None])
    other = planes.slopes[reached.argmax(axis=1)]
    return below[n, least], slope, np.abs(other - slope) * half


def _memory_apart(problem: Problem, count: int, boxes: Boxes, slopes: np.ndarray) -> np.ndarray:
    """About what memory's range is worth: the money between its ends, as rates."""
    least, most = (
        problem.money.left(problem.limits, np.full(len(slopes), float(count)), bytes_).usd
        for bytes_ in (boxes.least_bytes, boxes.most_bytes)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(np.isfinite(least), np.log(np.maximum(most, 1e-2 * least) / least), 0.0)
    return 0.5 * np.abs(ratio) * np.abs(slopes).sum(-1)


def halves(boxes: Boxes) -> Boxes:
    """Both halves of every box, split where most is lost."""
    width = boxes.high - boxes.low
    score = np.concatenate([boxes.apart[:, :4] + 0.02 * width, boxes.apart[:, 4:]], axis=1)
    side = score.argmax(axis=1)
    below, above = boxes, boxes
    n = np.arange(len(side))
    rate = np.minimum(side, width.shape[1] - 1)
    middle = 0.5 * (boxes.low + boxes.high)[n, rate]
    of_rate = side < width.shape[1]
    high, low = boxes.high.copy(), boxes.low.copy()
    high[n[of_rate], rate[of_rate]] = low[n[of_rate], rate[of_rate]] = middle[of_rate]
    memory = np.sqrt(np.maximum(boxes.least_bytes, 1e6) * boxes.most_bytes)
    below = boxes._replace(high=high, most_bytes=np.where(of_rate, boxes.most_bytes, memory))
    above = boxes._replace(low=low, least_bytes=np.where(of_rate, boxes.least_bytes, memory))
    return joined([below, above])
