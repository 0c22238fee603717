"""The data and the residuals of one fit: measured rows, measured kernels, and the prior."""

from collections.abc import Sequence

import numpy as np

from costmodel.measured.fit.evaluate import Evaluator, group
from costmodel.measured.fit.kernels import Kernel, linearised_kernels
from costmodel.measured.fit.parameters import PARAMETERS, SHARED, designs, deviations
from costmodel.measured.fit.solve import Loss, Solution, solve
from costmodel.measured.rows import Case

SOURCE_ROWS = 20.0
"""Rows that one source counts as, whatever their number. Chosen on calibration rows, leaving one source out."""
SOURCE_SD = 0.02
"""Standard deviation of what all rows of a source have in common, in the log. Chosen in the same way."""

_STEPS = 2
_SLOW_HOST = 2.0  # standard deviations: 0.14 ms a kernel, as slow as any class's


class Problem:
    """Rows with a measured time, and kernels. A vector holds the deviations, then one number for each source."""

    def __init__(
        self,
        cases: Sequence[Case],
        kernels: Sequence[Kernel],
        *,
        loss: Loss = Loss(),  # noqa: B008
        source_rows: float = SOURCE_ROWS,
        source_sd: float = SOURCE_SD,
    ) -> None:
        self.cases, self.kernels, self.loss = cases, kernels, loss
        self.source_rows, self.source_sd = source_rows, source_sd
        self.evaluator = Evaluator(cases)
        groups, kernel_groups = [group(case) for case in cases], [kernel.group for kernel in kernels]
        self.keys = deviations([*groups, *kernel_groups])
        self.design = designs(self.keys, groups)
        self.kernel_design = designs(self.keys, kernel_groups) if kernels else {}
        self.centres = {p.name: self.evaluator.centre(p) for p in PARAMETERS}
        self.log_measured = np.log([case.measured_step_s or np.nan for case in cases])
        self.sources = sorted({case.source for case in cases})
        self.of_source = np.array([[float(case.source == name) for name in self.sources] for case in cases])
        self.size = len(self.keys)

    def weights(self, kept: np.ndarray | bool = True) -> np.ndarray:
        """Each source counts as much as the others, by the rows that are kept; a kernel as one row of unit weight."""
        rows = kept * (self.of_source @ (self.source_rows / self.of_source.sum(axis=0)))
        return np.concatenate([rows, np.ones(len(self.kernels))])

    def free(self, z: np.ndarray) -> dict[str, np.ndarray]:
        """The unbounded variable of each parameter, by case."""
        return {name: self.centres[name] + design.of(z) for name, design in self.design.items()}

    def residuals(self, z: np.ndarray) -> np.ndarray:
        """Log predicted over measured, of rows and of kernels (in units of the loss's scale)."""
        rows = self.evaluator.log_times(self.free(z)) + self._common(z) - self.log_measured
        return np.concatenate([rows, self._kernels(z)[0]])

    def linearised(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals and their Jacobian."""
        log_times, slopes = self.evaluator.log_slopes(self.free(z))
        jacobian = np.zeros((len(self.cases), len(z)))
        for name, design in self.design.items():
            design.add(jacobian, slopes[name])
        jacobian[:, self.size :] = self.source_sd * self.of_source
        of_kernels, by_kernel = self._kernels(z)
        rows = log_times + self._common(z) - self.log_measured
        return np.concatenate([rows, of_kernels]), np.concatenate([jacobian, by_kernel])

    def _common(self, z: np.ndarray) -> np.ndarray:
        return self.source_sd * self.of_source @ z[self.size :]

    def _kernels(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        jacobian = np.zeros((len(self.kernels), len(z)))
        if not self.kernels:
            return np.zeros(0), jacobian
        free = {p.name: p.free(p.centre) + self.kernel_design[p.name].of(z) for p in PARAMETERS}
        residuals, slopes = linearised_kernels(self.kernels, free, self.loss.scale)
        for name, slope in slopes.items():
            self.kernel_design[name].add(jacobian, slope)
        return residuals, jacobian

    def solve(self, start: np.ndarray | None = None, kept: np.ndarray | bool = True, steps: int = 60) -> Solution:
        """The deviations that explain the data best; of the rows, those that are kept."""
        first = self._start() if start is None else start
        return solve(self.residuals, self.linearised, self.weights(kept), self.loss, first, steps)

    def _start(self) -> np.ndarray:
        """The prior's centres, but hosts that are slow: one that is hidden behind its accelerator has no slope."""
        first = np.zeros(self.size + len(self.sources))
        first[self.keys.index(("host_kernel_s", SHARED, ""))] = _SLOW_HOST
        return first

    def solve_without(self, start: np.ndarray, members: Sequence[str]) -> dict[str, Solution]:
        """The solution without the rows of each member in turn (each row's source or class), near that of all: of the
        problem linearised at `start`, then steps of the problem itself (a refit to the end moves the median error of a
        source by .00 to .02, mean .002)."""
        residuals, jacobian = self.linearised(start)

        def near(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return residuals + jacobian @ (z - start), jacobian

        found, names = {}, np.array(members)
        for name in dict.fromkeys(members):
            kept = names != name
            first = solve(lambda z: near(z)[0], near, self.weights(kept), self.loss, start, tolerance=1e-6)
            found[name] = self.solve(first.z, kept, steps=_STEPS)
        return found
