"""A finished fit as it is kept and used: deviations, their covariance, the rule of the regimes, and the scatter."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.measured.fit.parameters import LEVELS, PARAMETERS, SHARED, SLOW, TWO_REGIMES, Key, Weights
from costmodel.specs import DATA, read_mapping, read_tables

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
    memory: Mapping[str, float] = dataclasses.field(default_factory=dict)  # the same of bytes


def narrowed(
    keys: Sequence[Key], z: np.ndarray, covariance: np.ndarray
) -> tuple[tuple[Key, ...], np.ndarray, np.ndarray]:
    """The deviations that the data moved or narrowed, and the factor of their covariance."""
    variance = np.diag(covariance)
    moved = [j for j, key in enumerate(keys) if key[1] == SHARED or abs(z[j]) > _NEGLIGIBLE or variance[j] < _PRIOR]
    return tuple(keys[j] for j in moved), z[moved], np.linalg.cholesky(covariance[np.ix_(moved, moved)])


@functools.cache
def shipped() -> Fitted:
    """The fit of data/stacks.toml and data/stacks_posterior.json."""
    return from_files(read_tables("stacks"), read_mapping(DATA / "stacks_posterior.json"))


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
    tables["memory"] = {name or "other": _rounded(sd) for name, sd in fitted.memory.items()}
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
    scatter, memory = (
        {"" if name == "other" else name: sd for name, sd in tables.get(table, {}).items()}
        for table in ("scatter", "memory")
    )
    return Fitted(
        keys=tuple((str(n), str(level), str(m)) for n, level, m in posterior["keys"]),
        z=np.array(posterior["z"], float),
        factor=factor,
        regime_weights=tuple(tables["regime"]["weights"]),
        scatter=scatter,
        memory=memory,
    )


def _rounded(value: Any, digits: int = 6) -> float:
    return float(f"{float(value):.{digits}g}")
