r"""Adapt the fitted constants to a user's own rows: three suffice.

The user's software is a new member of its class: each constant gets a deviation of its own, with a prior as wide as
that between classes or dies, beside what the posterior of the shipped fit leaves open. Gauss-Newton steps from there on
those rows, robustly, are the Bayesian update, linearised anew at each step. The error before and after is that of each
row predicted by the others.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from costmodel.inputs import Stack, model_flop
from costmodel.measured.fit import (
    PARAMETERS,
    SLOW,
    Design,
    Evaluator,
    Fitted,
    Key,
    Loss,
    Parameter,
    best_free,
    designs,
    evaluator,
    group,
    shipped,
    solve,
)
from costmodel.measured.rows import Case

OWN = 0.7
"""Width of a constant's own deviation over that between software classes. Chosen on calibration rows, each source left
out of the fit and three of its rows given."""
LOSS = Loss(scale=0.05)
_CONTRADICTION = 0.2  # of the log: rows alike in all that is asked differ by more than repeated runs do
_STRANGE = 4.0  # scales of the loss from what the other rows say


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrated:
    """The stack of the user's cluster, and what was found on the way. Errors are absolute logarithms, row by row."""

    case: Case  # the row whose cluster the stack belongs to
    stack: Stack
    before: np.ndarray
    after: np.ndarray  # of each row by constants that did not see it; as `before` for a single row
    used: tuple[int, ...]  # rows, of those given
    problems: tuple[str, ...]


class Known(Protocol):
    """What is known before the rows where that is not the shipped fit: what was measured on the node itself."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """The deviations that may move."""
        ...

    @property
    def z(self) -> np.ndarray:
        """Their values."""
        ...

    @property
    def factor(self) -> np.ndarray:
        """A factor of their covariance."""
        ...

    def free(self, cases: Sequence[Case]) -> Mapping[str, np.ndarray]:
        """The unbounded variable of each parameter, by case."""
        ...

    def evaluator(self, cases: Sequence[Case]) -> Evaluator:
        """An evaluator of the cases."""
        ...


def calibrate(cases: Sequence[Case], fitted: Fitted | Known | None = None, own: float = OWN) -> Calibrated:
    """The update by all rows that have a time and can be true. At least one must."""
    fitted = fitted or shipped()
    possible, problems = _possible(cases)
    if not possible:
        raise ValueError("; ".join(problems) or "no row has a measured time; expected `measured_step_s`")
    update = Update([cases[i] for i in possible], fitted, own)
    everything = np.ones(len(possible))
    u = update.solve(everything)
    before = update.residuals(np.zeros(update.size))
    after = before.copy()
    for i in range(len(possible) if len(possible) > 1 else 0):
        after[i] = update.residuals(update.solve(everything - (np.arange(len(possible)) == i)))[i]
    problems += _contradictions(cases, possible) + _strange(cases, possible, update.residuals(u))
    chosen = cases[possible[0]]
    stack = dataclasses.replace(chosen.cluster.stack, **update.constants(u, 0))
    return Calibrated(
        case=chosen,
        stack=stack,
        before=np.abs(before),
        after=np.abs(after),
        used=tuple(possible),
        problems=tuple(problems),
    )


class Update:
    """Rows of one software. Unknowns: the posterior's standard normal variables, then the user's own deviations."""

    def __init__(self, cases: Sequence[Case], fitted: Fitted | Known, own: float = OWN) -> None:
        self.fitted, self.own = fitted, own
        if isinstance(fitted, Fitted):
            self.evaluator, self.start = evaluator(fitted, cases), best_free(fitted, cases)
        else:
            self.evaluator, self.start = fitted.evaluator(cases), fitted.free(cases)
        self.log_measured = np.log([case.measured_step_s or np.nan for case in cases])
        self.design = designs(fitted.keys, [group(case) for case in cases])
        self.size = len(fitted.z) + len(PARAMETERS)

    def free(self, u: np.ndarray) -> dict[str, np.ndarray]:
        """The unbounded variable of each parameter, by row."""
        moved, count = self.fitted.factor @ u[: len(self.fitted.z)], len(self.fitted.z)
        return {
            p.name: self.start[p.name] + self.design[p.name].of(moved) + self.own * _width(p) * u[count + j]
            for j, p in enumerate(PARAMETERS)
        }

    def residuals(self, u: np.ndarray) -> np.ndarray:
        """Log predicted over measured."""
        return self.evaluator.log_times(self.free(u)) - self.log_measured

    def linearised(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals and their Jacobian."""
        log_times, slopes = self.evaluator.log_slopes(self.free(u))
        count = len(self.fitted.z)
        by_z, jacobian = np.zeros((len(log_times), count)), np.zeros((len(log_times), self.size))
        for j, p in enumerate(PARAMETERS):
            design: Design = self.design[p.name]
            design.add(by_z, slopes[p.name])
            jacobian[:, count + j] = self.own * _width(p) * slopes[p.name]
        jacobian[:, :count] = by_z @ self.fitted.factor
        return log_times - self.log_measured, jacobian

    def solve(self, weights: np.ndarray) -> np.ndarray:
        """The most probable unknowns."""
        return solve(self.residuals, self.linearised, weights, LOSS, np.zeros(self.size), steps=8, tolerance=1e-5).z

    def constants(self, u: np.ndarray, row: int) -> dict[str, float]:
        """Fields of the stack of one row."""
        values = self.evaluator.values(self.free(u))
        return {name: float(value[row]) for name, value in values.items() if name != SLOW}


def _width(parameter: Parameter) -> float:
    """Width of the user's own deviation: that between classes or dies, else half of the shared uncertainty."""
    return max(parameter.stack, parameter.die, 0.5 * parameter.shared)


def _possible(cases: Sequence[Case]) -> tuple[list[int], list[str]]:
    """Rows of the first row's hardware with a time that the accelerators can reach."""
    possible, problems = [], []
    for i, case in enumerate(cases):
        reason = _impossible(case)
        if reason is None and possible and case.cluster.accelerator.name != cases[possible[0]].cluster.accelerator.name:
            reason = f"ran on {case.cluster.accelerator.name}, the rows before on another accelerator"
        if reason is None:
            possible.append(i)
        else:
            problems.append(f"row {i + 1} is left out: it {reason}")
    return possible, problems


def _impossible(case: Case) -> str | None:
    if case.measured_step_s is None:
        return "has no measured time"
    chip, width = case.cluster.accelerator, {"nvfp4": "4bit", "fp32": "32bit"}.get(case.plan.precision)
    width = width or ("8bit" if "fp8" in case.plan.precision else "16bit")
    flop = model_flop(case.workload) * case.workload.batch / case.plan.accelerators
    share = flop / case.measured_step_s / getattr(chip, f"peak_{width}_flop_per_s")
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
