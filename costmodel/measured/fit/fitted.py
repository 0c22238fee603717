"""A finished fit as it is kept and used: deviations, their covariance, the rule of the regimes, and the scatter."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.inputs import Kind
from costmodel.measured.fit.evaluate import Evaluator, group
from costmodel.measured.fit.parameters import LEVELS, PARAMETERS, SHARED, SLOW, Group, Key, designs
from costmodel.measured.fit.regimes import TWO_REGIMES, Weights, likely_slow
from costmodel.measured.rows import Case

_NEGLIGIBLE = 0.03  # of a prior standard deviation: a deviation that the data hardly moved
_PRIOR = 0.97  # of a prior variance: what the data hardly narrowed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fitted:
    """A finished fit. `factor` times its transpose is the covariance of the deviations `z`, one for each of `keys`.

    A deviation that is not among them has its prior.
    """

    keys: tuple[Key, ...]
    z: np.ndarray
    factor: np.ndarray
    regime_weights: Weights
    scatter: Mapping[str, float]  # standard deviation of log(predicted / measured) by software class; "" for others

    def free(self, cases: Sequence[Case]) -> dict[str, np.ndarray]:
        """The unbounded variable of each parameter, by case."""
        design = designs(self.keys, [group(case) for case in cases])
        return {p.name: float(p.free(p.centre)) + design[p.name].of(self.z) for p in PARAMETERS}

    def evaluator(self, cases: Sequence[Case]) -> Evaluator:
        """An evaluator of the cases, each in the regime that its columns name."""
        evaluator = Evaluator(cases)
        evaluator.slow = likely_slow(self.regime_weights, cases)
        return evaluator

    def linearised(self, cases: Sequence[Case]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log times, their Jacobian by the deviations, and the variance from groups that were never measured."""
        log_times, slopes = self.evaluator(cases).log_slopes(self.free(cases))
        groups = [group(case) for case in cases]
        jacobian, unseen = np.zeros((len(cases), len(self.z))), np.zeros(len(cases))
        keys = set(self.keys)
        for p in PARAMETERS:
            design = designs(self.keys, groups, (p,))[p.name]
            design.add(jacobian, slopes[p.name])
            missing = np.array([_missing(keys, p, g) for g in groups])
            unseen += missing * slopes[p.name] ** 2
        return log_times, jacobian, unseen


EXPERTS = "_experts"


def scatter_class(case: Case) -> str:
    """The class whose scatter a case has: its software, and whether the model has experts."""
    return case.stack + (EXPERTS if any(op.kind == Kind.EXCHANGE for b in case.workload.blocks for op in b.ops) else "")


def _missing(keys: set[Key], parameter: Any, member: Group) -> float:
    """Prior variance of the deviations that are not among `keys`."""
    absent = [level for level in LEVELS if (parameter.name, level, member[level]) not in keys]
    return sum(getattr(parameter, level) ** 2 for level in absent)


def narrowed(
    keys: Sequence[Key], z: np.ndarray, covariance: np.ndarray
) -> tuple[tuple[Key, ...], np.ndarray, np.ndarray]:
    """The deviations that the data moved or narrowed, and the factor of their covariance."""
    variance = np.diag(covariance)
    moved = [j for j, key in enumerate(keys) if key[1] == SHARED or abs(z[j]) > _NEGLIGIBLE or variance[j] < _PRIOR]
    return tuple(keys[j] for j in moved), z[moved], np.linalg.cholesky(covariance[np.ix_(moved, moved)])


def as_tables(fitted: Fitted, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """What data/stacks.toml holds: shared values, deviations of the unbounded variables, regime, scatter."""
    by_name = {p.name: p for p in PARAMETERS}
    tables: dict[str, Any] = {"provenance": dict(provenance)}
    tables["shares"] = [p.name for p in PARAMETERS if p.share]
    tables["shared"] = {}
    tables |= {level: {} for level in LEVELS}
    for (name, level, member), z in zip(fitted.keys, fitted.z, strict=True):
        p = by_name[name]
        if level == SHARED:
            tables["shared"][name] = _rounded(p.value(p.free(p.centre) + p.shared * z))
        else:
            tables[level].setdefault(member, {})[name] = _rounded(getattr(p, level) * z)
    slow_s = tables["shared"].pop(SLOW)
    tables["regime"] = {"stack": TWO_REGIMES, SLOW: slow_s, "weights": [_rounded(w) for w in fitted.regime_weights]}
    tables["scatter"] = {name or "other": _rounded(sd) for name, sd in fitted.scatter.items()}
    return tables


def as_posterior(fitted: Fitted) -> dict[str, Any]:
    """What data/stacks_posterior.json holds: the deviations and the rows of the triangular factor."""
    rows = [[_rounded(x, 3) for x in row[: i + 1]] for i, row in enumerate(fitted.factor)]
    return {"keys": [list(key) for key in fitted.keys], "z": [_rounded(x) for x in fitted.z], "factor": rows}


def from_files(tables: Mapping[str, Any], posterior: Mapping[str, Any]) -> Fitted:
    """The fit that `as_tables` and `as_posterior` wrote."""
    size = len(posterior["z"])
    factor = np.zeros((size, size))
    for i, row in enumerate(posterior["factor"]):
        factor[i, : i + 1] = row
    scatter = {"" if name == "other" else name: sd for name, sd in tables["scatter"].items()}
    return Fitted(
        keys=tuple((str(n), str(level), str(m)) for n, level, m in posterior["keys"]),
        z=np.array(posterior["z"], float),
        factor=factor,
        regime_weights=tuple(tables["regime"]["weights"]),
        scatter=scatter,
    )


def _rounded(value: Any, digits: int = 6) -> float:
    return float(f"{float(value):.{digits}g}")
