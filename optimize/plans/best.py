"""What is kept of the plans that a search has seen: the best few, and the best of each group."""

import dataclasses

import numpy as np

from optimize.lattice import Lattice


@dataclasses.dataclass(frozen=True)
class Entry:
    """A plan by its number, with its value in float64."""

    value: float
    index: int

    @property
    def key(self) -> tuple[float, int]:
        """Ties, up to the rounding of sums, are ordered by the plan's number."""
        return float(f"{self.value:.12e}"), self.index


@dataclasses.dataclass(frozen=True)
class Best:
    """What is kept of the plans seen so far. `cells` and `levels` hold the best of each group, by group."""

    top: tuple[Entry, ...] = ()
    cells: dict[int, Entry] = dataclasses.field(default_factory=dict)  # by tensor and pipeline degree
    levels: dict[int, Entry] = dataclasses.field(default_factory=dict)  # by how much a plan makes use of
    evaluated: int = 0
    fitting: int = 0
    unseen: float = np.inf  # a lower bound of what is not evaluated and not proved to be worse; infinite: nothing

    def merged(self, other: "Best", top: int) -> "Best":
        """The best of both; the order does not matter."""
        entries = sorted({*self.top, *other.top}, key=lambda entry: entry.key)
        return Best(
            top=tuple(entries[:top]),
            cells=_lower(self.cells, other.cells),
            levels=_lower(self.levels, other.levels),
            evaluated=self.evaluated + other.evaluated,
            fitting=self.fitting + other.fitting,
            unseen=min(self.unseen, other.unseen),
        )


def _lower(first: dict[int, Entry], second: dict[int, Entry]) -> dict[int, Entry]:
    keys = sorted({*first, *second})
    return {key: min((of[key] for of in (first, second) if key in of), key=lambda entry: entry.key) for key in keys}


_CELL = 1 << 24


def cells_of_rows(lattice: Lattice) -> np.ndarray:
    """Tensor and pipeline degree of every row of degrees, as one number."""
    return lattice.rows["tensor"] * _CELL + lattice.rows["pipeline"]


def cell_degrees(cell: int) -> tuple[int, int]:
    """Tensor and pipeline degree of a cell."""
    return divmod(cell, _CELL)


def cells_of(lattice: Lattice) -> frozenset[tuple[int, int]]:
    """Tensor and pipeline degrees of all its rows."""
    return frozenset(map(cell_degrees, map(int, np.unique(cells_of_rows(lattice)))))
