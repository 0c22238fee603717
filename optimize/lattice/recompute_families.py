"""Plans of one count and domain, as families that differ in recompute alone: one bound dismisses a family.

A family's seconds are at least those without recompute, its bytes at least those with everything recomputed (or with
nothing, if that is less).
"""

import dataclasses
from typing import Any

import numpy as np

from costmodel.inputs import RECOMPUTES, PlanPoint
from optimize.lattice.lattice import Lattice


@dataclasses.dataclass(frozen=True)
class Families:
    """The first plan of each family of a lattice."""

    lattice: Lattice

    @property
    def _members(self) -> np.ndarray:
        """Plans of a family, by row: the last axis of the lattice."""
        if not len(self.lattice):
            return np.ones(0, int)
        last = self.lattice.axes[-1]
        assert "recompute" in last.table, sorted(last.table)
        return last.count

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def ends(self) -> np.ndarray:
        """Families up to and including each row."""
        return np.cumsum(self.sizes // self._members)

    @property
    def sizes(self) -> np.ndarray:
        """Plans of each row."""
        return np.diff(self.lattice.ends, prepend=0)

    def first(self, start: int, stop: int) -> np.ndarray:
        """Number, in the lattice, of the first plan of families `start` to `stop` - 1."""
        ends = self.ends
        number = np.arange(start, min(stop, len(self)))
        row = np.searchsorted(ends, number, side="right")
        within = number - (ends[row] - (self.sizes // self._members)[row])
        return (self.lattice.ends[row] - self.sizes[row]) + within * self._members[row]

    def members(self, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All plans of families, and the place in `first` of each one's family."""
        row = np.searchsorted(self.lattice.ends, first, side="right")
        family, number = _numbered(self._members[row])
        return first[family] + number, family

    def points(self, first: np.ndarray, dtype: Any) -> PlanPoint:
        """The fastest that each family can be: nothing recomputed."""
        return dataclasses.replace(self.lattice.points(first, dtype), recompute=RECOMPUTES["none"])

    def of_any_schedule(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first plan of each run of families of some rows that differ in the schedule alone, and the place in
        `rows` of each one's row."""
        count = self._members[rows]
        place, number = _numbered(self._inner[rows] // count)
        return (self.lattice.ends[rows] - self.sizes[rows])[place] + number * count[place], place

    def schedules(self, first: np.ndarray) -> np.ndarray:
        """How many plans differ in the schedule alone."""
        return self.lattice.axes[0].count[np.searchsorted(self.lattice.ends, first, side="right")]

    def of_every_schedule(self, first: np.ndarray) -> np.ndarray:
        """The first plans of the families of such runs."""
        row = np.searchsorted(self.lattice.ends, first, side="right")
        place, number = _numbered(self.lattice.axes[0].count[row])
        return first[place] + number * self._inner[row][place]

    def by_recompute(self, first: np.ndarray) -> tuple[np.ndarray, Any]:
        """The members of families by mode of recompute, -1 where one has no such, and rows of what each recomputes."""
        axis, ends = self.lattice.axes[-1], self.lattice.ends
        row = np.minimum(np.searchsorted(ends, first, side="right"), len(ends) - 1)  # rows without a plan have no last
        count = axis.count[row]
        place = np.arange(count.max(initial=0))[:, None]
        entry = axis.offset[row] + np.minimum(place, count - 1)
        return np.where(place < count, first + place, -1), axis.fields(entry, np.float64)["recompute"]

    def recompute_of(self, plans: np.ndarray) -> Any:
        """Rows of what plans recompute."""
        _, entries = self.lattice.select(plans)
        return self.lattice.axes[-1].fields(entries[-1], np.float64)["recompute"]

    @property
    def _inner(self) -> np.ndarray:
        """Plans of a row under one schedule, which is its first axis."""
        assert "schedule" in self.lattice.axes[0].table, sorted(self.lattice.axes[0].table)
        return self.sizes // self.lattice.axes[0].count


def _numbered(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of so many things at each place the place, and their numbers there."""
    place = np.repeat(np.arange(len(counts)), counts)
    return place, np.arange(len(place)) - (np.cumsum(counts) - counts)[place]
