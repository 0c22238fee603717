"""What a search for one job knows: the best answer, what is still open, and the least bound of what was dismissed."""

import dataclasses
from collections.abc import Callable

import numpy as np

from costmodel.inputs import Plan
from optimize.clusters.cells import Cell
from optimize.clusters.descent import Relaxed
from optimize.clusters.screening import BATCH, Screened
from optimize.question import RATES, Problem

TOLERANCE = 5e-4  # of the value: what lies closer to the best answer than this is not looked at again
MOST_SEEN = 8_000_000  # families whose screens are kept: some 200 MB


@dataclasses.dataclass
class Open:
    """Families or plans of one cell that may still be best, with bounds (logarithms of the minimised value)."""

    cell: Cell
    indices: np.ndarray
    log_bound: np.ndarray
    y: np.ndarray

    def keep(self, chosen: np.ndarray) -> "Open":
        return Open(self.cell, self.indices[chosen], self.log_bound[chosen], self.y[chosen])


def joined(cell: Cell, parts: list[Open]) -> Open:
    """Several parts of one cell as one."""
    parts = [part for part in parts if len(part.indices)]
    if not parts:
        return Open(cell, np.zeros(0, int), np.zeros(0), np.zeros((0, len(RATES))))
    columns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "log_bound", "y"))
    return Open(cell, *columns)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Best:
    """A plan with hardware that meets the limits."""

    log_value: float
    cell: Cell
    index: int
    y: np.ndarray
    hbm_bytes: float
    plan: Plan


@dataclasses.dataclass(frozen=True)
class Seen:
    """Screens of whole batches by count, domain and first family: they hold for every budget (float32 to save room)."""

    batches: dict[tuple[int, int, int], tuple[Screened, np.ndarray]]

    def of(
        self, cell: Cell, first: np.ndarray, y: np.ndarray, make: Callable[[], Screened]
    ) -> tuple[Screened, np.ndarray]:
        """A batch at the place where it was first screened, or now at `y`."""
        key = (cell.accelerators, cell.domain, int(first[0]))
        if key not in self.batches:
            found = make()
            if len(self.batches) * BATCH > MOST_SEEN:
                return found, y
            self.batches[key] = Screened(*(column.astype(np.float32) for column in found)), y[0]
            return found, y
        kept, place = self.batches[key]
        return Screened(*(column.astype(float) for column in kept)), np.broadcast_to(place, y.shape)


@dataclasses.dataclass
class Progress:
    """What a search knows so far."""

    problem: Problem
    best: Best | None = None
    dismissed: float = np.inf  # the least bound among what was dismissed
    open: list[Open] = dataclasses.field(default_factory=list)
    unseen: dict[tuple[int, int], float] = dataclasses.field(default_factory=dict)  # bounds of cells not yet scanned
    evaluations: int = 0
    relaxed: Relaxed | None = None
    interrupted: bool = False
    counts: tuple[int, ...] = ()  # of accelerators, that the bound is about
    seen: "Seen" = dataclasses.field(default_factory=lambda: Seen({}))
    runners_up: dict[tuple[int, int, int], Best] = dataclasses.field(default_factory=dict)

    @property
    def cut(self) -> float:
        """Bounds above it need no more work."""
        return np.inf if self.best is None else self.best.log_value - TOLERANCE

    @property
    def log_bound(self) -> float:
        """Nothing is below."""
        ends = [
            self.dismissed,
            *self.unseen.values(),
            *(part.log_bound.min() for part in self.open if len(part.indices)),
        ]
        return min([*ends, np.inf if self.best is None else self.best.log_value])

    def place(self) -> np.ndarray:
        """Rates near the best that are known."""
        if self.best is not None:
            return self.best.y
        assert self.relaxed is not None
        return self.relaxed.y(np.array([0]))[0]

    def dismiss(self, log_bound: np.ndarray) -> None:
        if len(log_bound):
            self.dismissed = min(self.dismissed, float(log_bound.min()))

    def offer(self, best: Best) -> None:
        key = (best.cell.accelerators, best.cell.domain, best.index)
        if key not in self.runners_up or best.log_value < self.runners_up[key].log_value:
            self.runners_up[key] = best
        if self.best is None or best.log_value < self.best.log_value:
            self.best = best


def trim(progress: Progress, part: Open) -> Open:
    """Without what is not possible or cannot be best."""
    above = part.log_bound >= progress.cut
    progress.dismiss(part.log_bound[above & np.isfinite(part.log_bound)])
    return part.keep(~above & np.isfinite(part.log_bound))
