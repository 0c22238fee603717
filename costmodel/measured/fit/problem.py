"""The data and the residuals of one fit: measured rows, measured kernels, and the prior."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from costmodel.measured.fit.evaluate import Evaluator, group
from costmodel.measured.fit.kernels import Kernel, log_shares
from costmodel.measured.fit.parameters import PARAMETERS, Columns
from costmodel.measured.fit.solve import Loss, Solution, solve
from costmodel.measured.rows import Case


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What was chosen on calibration rows, leaving one source out."""

    loss: Loss = Loss()
    source_rows: float = 20.0  # rows that one source counts as, whatever their number
    source_sd: float = 0.02  # of what all rows of a source have in common, in the log


class Problem:
    """Rows with a measured time, and kernels. A vector holds the deviations, then one number for each source."""

    def __init__(self, cases: Sequence[Case], found: Sequence[Kernel], settings: Settings) -> None:
        self.cases, self.found, self.settings = cases, found, settings
        self.evaluator = Evaluator(cases)
        groups, kernel_groups = [group(case) for case in cases], [kernel.group for kernel in found]
        self.columns = Columns.of([*groups, *kernel_groups])
        self.design = self.columns.design(groups)
        self.kernel_design = self.columns.design(kernel_groups) if found else {}
        self.centres = {p.name: self.evaluator.centre(p) for p in PARAMETERS}
        self.log_measured = np.log([case.measured_step_s or np.nan for case in cases])
        self.sources = sorted({case.source for case in cases})
        self.of_source = np.array([[float(case.source == name) for name in self.sources] for case in cases])
        self.size = len(self.columns.keys)

    def weights(self, left_out: str | None = None) -> np.ndarray:
        """Each source counts as much as the others; each kernel as one row of unit weight."""
        counts = self.of_source.sum(axis=0)
        kept = np.array([name != left_out for name in self.sources])
        rows = self.of_source @ (kept * self.settings.source_rows / counts)
        return np.concatenate([rows, np.ones(len(self.found))])

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
        jacobian[:, self.size :] = self.settings.source_sd * self.of_source
        kernels, by_kernel = self._kernels(z)
        rows = log_times + self._common(z) - self.log_measured
        return np.concatenate([rows, kernels]), np.concatenate([jacobian, by_kernel])

    def _common(self, z: np.ndarray) -> np.ndarray:
        return self.settings.source_sd * self.of_source @ z[self.size :]

    def _kernels(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        jacobian = np.zeros((len(self.found), len(z)))
        if not self.found:
            return np.zeros(0), jacobian
        values, slopes_of = {}, {}
        for p in PARAMETERS:
            values[p.name] = p.value(p.free(p.centre) + self.kernel_design[p.name].of(z))
            slopes_of[p.name] = p.slope(values[p.name])
        logs, slopes = log_shares(self.found, values)
        unit = self.settings.loss.scale / np.array([kernel.scatter for kernel in self.found])
        for name, slope in slopes.items():
            self.kernel_design[name].add(jacobian, unit * slope * slopes_of[name])
        return unit * (logs - np.array([kernel.log_share for kernel in self.found])), jacobian

    def solve(self, start: np.ndarray | None = None, left_out: str | None = None) -> Solution:
        """The deviations that explain the data best."""
        first = np.zeros(self.size + len(self.sources)) if start is None else start
        return solve(self.residuals, self.linearised, self.weights(left_out), self.settings.loss, first)
