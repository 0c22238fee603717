r"""Adapt the fitted constants to a user's own rows: three suffice.

The user's software is either as the shipped fit knows it, up to what its posterior leaves open, or one of its own:
then each constant has a further deviation, with a prior as wide as that between classes or dies, and all of them one in
common (a machine that is uniformly slower). Gauss-Newton steps on those rows and kernels, robustly, are the Bayesian
update under either, linearised anew at each step. The answer is their mean, weighted by their evidence
$p(rows) \approx e^{-L} |H|^{-1/2}$ ($L$ the least loss, $H$ its curvature, by Laplace's approximation): rows that
agree with each other and not with the fit speak for a software of its own, rows that only scatter do not. What is found
are deviations, which every accelerator applies to its own constants. The error before and after is that of each row
predicted by the others.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from costmodel.inputs import Stack, model_flop
from costmodel.measured.fit import (
    COMMON,
    PARAMETERS,
    SLOW,
    Fitted,
    Kernel,
    Loss,
    Solution,
    best_free,
    common_direction,
    designs,
    evaluator,
    group,
    linearised_kernels,
    of_own_software,
    shipped,
    solve,
)
from costmodel.measured.node import OwnConstants
from costmodel.measured.rows import Case
from costmodel.shown import Shown
from costmodel.specs import Check, expecting

LOSS = Loss(scale=0.05, freedom=4.0)
_CONTRADICTION = 0.2  # of the log: rows alike in all that is asked differ by more than repeated runs do
_FOLDS = 10  # that rows are predicted in by the others: each row alone where there are not more of them
_MOVED, _LISTED = 0.05, 8  # of a logarithm: constants that moved less are not listed, nor more of them
_LEFT = 0.7  # of the scatter between software of a class, inside one of which some rows are known: see `fitted`
_STRANGE = 4.0  # scales of the loss from what the other rows say


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrated(Shown):
    """The stack of the user's cluster, and what was found on the way. Errors are absolute logarithms, row by row."""

    case: Case  # the row whose cluster the stack belongs to
    stack: Stack
    fitted: Fitted | None  # with what was found: predicts further rows of this software; None where a node was measured
    common: float  # factor of all times, beside the constants' own deviations
    moved: tuple[tuple[str, float, float], ...]  # constants of the stack before and after, the most moved first
    before: np.ndarray
    after: np.ndarray  # of each row by constants that did not see it; as `before` for a single row
    used: tuple[int, ...]  # rows, of those given
    problems: tuple[str, ...]


_CASES = Check(
    "a list of rows, such as costmodel.measured.read_cases(path) gives",
    lambda value: isinstance(value, Sequence) and all(isinstance(row, Case) for row in value),
)


@expecting(cases=_CASES)
def calibrate(
    cases: Sequence[Case], fitted: Fitted | OwnConstants | None = None, kernels: Sequence[Kernel] = ()
) -> Calibrated:
    """The update by all rows that have a time and can be true, and by kernels. At least one row must."""
    possible, problems = _possible(cases)
    if not possible:
        raise ValueError("; ".join(problems) or "no row has a measured time; expected `measured_step_s`")
    update = Update([cases[i] for i in possible], fitted or shipped(), kernels)
    folds = np.arange(len(possible)) % _FOLDS
    found, open_factor = update.solve(np.ones(len(possible)))
    before = update.residuals(np.zeros(update.size))[: len(possible)]
    after = before.copy()
    for fold in range(min(len(possible), _FOLDS) if len(possible) > 1 else 0):
        held = np.flatnonzero(folds == fold)
        after[held] = update.residuals(update.solve((folds != fold).astype(float))[0])[held]
    problems += _contradictions(cases, possible) + _strange(cases, possible, update.residuals(found)[: len(possible)])
    chosen = cases[possible[0]]
    return Calibrated(
        case=chosen,
        stack=dataclasses.replace(chosen.cluster.stack, **update.constants(found, 0)),
        fitted=update.fitted(found, open_factor),
        common=update.common(found),
        moved=_moved(update.constants(np.zeros(update.size), 0), update.constants(found, 0)),
        before=np.abs(before),
        after=np.abs(after),
        used=tuple(possible),
        problems=tuple(problems),
    )


def calibrate_kernels(kernels: Sequence[Kernel], fitted: Fitted | None = None) -> tuple[Fitted, np.ndarray, np.ndarray]:
    """The fit after kernels that were measured alone, and their absolute logarithmic errors before and after."""
    update = Update([], fitted or shipped(), kernels)
    found, open_factor = update.solve(np.ones(0))
    after = update.fitted(found, open_factor)
    assert after is not None
    # what a training step adds to kernels alone stays as uncertain as it was
    after = dataclasses.replace(after, scatter=(fitted or shipped()).scatter)
    unit = np.array([kernel.scatter for kernel in kernels]) / LOSS.scale
    first, last = (np.abs(unit * update.residuals(moved)) for moved in (np.zeros(update.size), found))
    return after, first, last


class Update:
    """Rows and kernels of one software. Unknown is how far its deviations have moved from those that are known."""

    def __init__(self, cases: Sequence[Case], known: Fitted | OwnConstants, kernels: Sequence[Kernel] = ()) -> None:
        self.known = known
        self.priors = (known.factor, of_own_software(known).factor) if isinstance(known, Fitted) else (known.factor,)
        self.kernels, self.count = kernels, len(cases)
        if isinstance(known, Fitted):
            self.evaluator, self.start = evaluator(known, cases), best_free(known, cases)
        else:
            self.evaluator, self.start = known.evaluator(cases), known.free(cases)
        self.log_measured = np.log([case.measured_step_s or np.nan for case in cases])
        self.design = designs(self.known.keys, [group(case) for case in cases])
        self.kernel_design = designs(self.known.keys, [kernel.group for kernel in kernels]) if kernels else {}
        self.size = len(self.known.z)

    def free(self, moved: np.ndarray) -> dict[str, np.ndarray]:
        """The unbounded variable of each parameter, by row."""
        return {p.name: self.start[p.name] + self.design[p.name].of(moved) for p in PARAMETERS}

    def residuals(self, moved: np.ndarray) -> np.ndarray:
        """Log predicted over measured of each row, then of each kernel (in units of its scatter over the loss's)."""
        rows = self.evaluator.log_times(self.free(moved)) - self.log_measured
        return np.concatenate([rows, self._kernels(moved)[0]])

    def linearised(self, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals and their Jacobian."""
        log_times, slopes = self.evaluator.log_slopes(self.free(moved))
        jacobian = np.zeros((self.count, self.size))
        for p in PARAMETERS:
            self.design[p.name].add(jacobian, slopes[p.name])
        of_kernels, by_kernel = self._kernels(moved)
        residuals = np.concatenate([log_times - self.log_measured, of_kernels])
        return residuals, np.concatenate([jacobian, by_kernel])

    def _kernels(self, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals of the kernels, and their Jacobian by the deviations."""
        jacobian = np.zeros((len(self.kernels), self.size))
        if not self.kernels:
            return np.zeros(0), jacobian
        z = self.known.z + moved
        free = {p.name: p.free(p.centre) + self.kernel_design[p.name].of(z) for p in PARAMETERS}
        residuals, slopes = linearised_kernels(self.kernels, free, LOSS.scale)
        for name, slope in slopes.items():
            self.kernel_design[name].add(jacobian, slope)
        return residuals, jacobian

    def solve(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far the deviations have moved in the mean, by rows of these weights and all kernels; and the factor of
        the covariance that is left."""
        weights = np.concatenate([weights, np.ones(len(self.kernels))])
        found = [self._solved(prior, weights) for prior in self.priors]
        evidence = np.array([-one.objective - 0.5 * np.linalg.slogdet(one.curvature)[1] for one in found])
        shares = np.exp(evidence - evidence.max()) / np.exp(evidence - evidence.max()).sum()
        moved = [prior @ one.z for prior, one in zip(self.priors, found, strict=True)]
        mean = np.asarray(shares @ np.array(moved))
        covariance = np.zeros((self.size, self.size))
        for share, prior, one, own in zip(shares, self.priors, found, moved, strict=True):
            covariance += share * (prior @ np.linalg.solve(one.curvature, prior.T) + np.outer(own - mean, own - mean))
        return mean, np.linalg.cholesky(covariance)

    def _solved(self, prior: np.ndarray, weights: np.ndarray) -> Solution:
        """The most probable standard normal variables behind a prior, which is the factor of a covariance."""

        def linearised(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            residuals, jacobian = self.linearised(prior @ u)
            return residuals, jacobian @ prior

        start = np.zeros(self.size)
        return solve(lambda u: self.residuals(prior @ u), linearised, weights, LOSS, start, steps=8, tolerance=1e-5)

    def constants(self, moved: np.ndarray, row: int) -> dict[str, float]:
        """Fields of the stack of one row."""
        values = self.evaluator.values(self.free(moved))
        return {name: float(value[row]) for name, value in values.items() if name != SLOW}

    def fitted(self, moved: np.ndarray, open_factor: np.ndarray) -> Fitted | None:
        """The fit as it is known after the rows: what is left is the scatter inside one software.

        C: as a share of that between software of the class. After three rows of sources that the fit did not see, 80 %
        of the others lay inside p10 to p90 with it, in the mean over sources, where that scatter was of sources left
        out alone; it is wider since it is also of whole classes left out (`fit.scatter`).
        """
        if not isinstance(self.known, Fitted):
            return None
        scatter = {name: (1.0 if name == "within" else _LEFT) * sd for name, sd in self.known.scatter.items()}
        return dataclasses.replace(self.known, z=self.known.z + moved, factor=open_factor, scatter=scatter)

    def common(self, moved: np.ndarray) -> float:
        """The factor of all times, as far as what was found is likely to be one: its mean given the deviations, for a
        software of its own."""
        if not isinstance(self.known, Fitted):
            return 1.0
        own, along = self.priors[-1], COMMON * common_direction(self.known)
        return float(np.exp(COMMON * (np.linalg.solve(own, along) @ np.linalg.solve(own, moved))))


def _moved(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[tuple[str, float, float], ...]:
    """The constants that moved most, by the ratio of their values."""
    ratio = {name: abs(float(np.log(after[name] / before[name]))) for name in before if before[name] > 0}
    order = sorted((name for name in ratio if ratio[name] > _MOVED), key=lambda name: -ratio[name])
    return tuple((name, before[name], after[name]) for name in order[:_LISTED])


def _possible(cases: Sequence[Case]) -> tuple[list[int], list[str]]:
    """Rows with a time that the accelerators can reach."""
    reasons = [_impossible(case) for case in cases]
    problems = [f"row {i + 1} is left out: it {reason}" for i, reason in enumerate(reasons) if reason]
    return [i for i, reason in enumerate(reasons) if reason is None], problems


def _impossible(case: Case) -> str | None:
    if case.measured_step_s is None:
        return "has no measured time"
    flop = model_flop(case.workload) * case.workload.batch / case.plan.accelerators
    share = flop / case.measured_step_s / case.peak_flop_per_s(case.product_bits)
    return f"is faster than the accelerators' peak ({share:.2f} of it in model FLOP alone)" if share > 1 else None


def _question(case: Case) -> tuple[tuple[str, str], ...]:
    """The cells of a row that a prediction reads."""
    not_read = ("measured_", "notes", "source", "trust", "oom", "flops_convention")
    return tuple((k, v) for k, v in case.row.items() if not k.startswith(not_read))


def _contradictions(cases: Sequence[Case], used: Sequence[int]) -> list[str]:
    """Rows that are alike in all that is asked, and whose times are not."""
    groups: dict[tuple, list[int]] = {}
    for i in used:
        groups.setdefault(_question(cases[i]), []).append(i)
    problems = []
    for same in groups.values():
        times = [cases[i].measured_step_s or 0.0 for i in same]
        if np.log(max(times) / min(times)) > _CONTRADICTION:
            rows = ", ".join(str(i + 1) for i in same)
            problems.append(f"rows {rows} are the same run and took from {min(times):.3g} to {max(times):.3g} s")
    return problems


def _strange(cases: Sequence[Case], used: Sequence[int], errors: np.ndarray) -> list[str]:
    """Rows that the constants of all rows together do not explain."""
    problems = []
    for i, error in zip(used, errors, strict=True):
        took_s = cases[i].measured_step_s or 0.0
        if abs(error) > _STRANGE * LOSS.scale:
            problems.append(f"row {i + 1} took {took_s:.4g} s, all rows together say {took_s * np.exp(error):.4g} s")
    return problems
