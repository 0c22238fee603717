r"""The fitted constants: a shared value, and deviations by die, accelerator, software class and fabric.

The constant of one row is $T(c + \sigma_0 z_0 + \sigma_d z_d + \sigma_f z_f + \sigma_s z_s + \sigma_n z_n)$ with $T$
the exponential (positive numbers) or the logistic function (shares) and $z$ standard normal by the prior: what has no
rows stays at the shared value. Half a unit of a logit moves a share of 0.8 to 0.87 or 0.71.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

SHARED = "shared"
SLOW = "slow_microbatch_s"
"""Beyond `Stack.microbatch_s`, in the second regime of `regimes.py`; not a leaf of the Stack."""
LEVELS = ("die", "family", "stack", "fabric")
TWO_REGIMES = "nanotron"
"""The software class whose rows come in two kinds (`regimes.py`)."""
Weights = tuple[float, ...]
"""Weights of `regimes.features`: a row of that class is slow where their weighted sum is positive."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    """One leaf of the Stack: its prior's centre and standard deviations by level."""

    name: str
    centre: float
    share: bool = False  # a number between 0 and 1: logistic instead of exponential
    shared: float
    die: float = 0.0
    family: float = 0.0
    stack: float = 0.0
    fabric: float = 0.0

    def free(self, value: np.ndarray | float) -> np.ndarray:
        """The unbounded variable of a value."""
        value = np.asarray(value, float)
        return np.log(value / (1.0 - value)) if self.share else np.log(value)

    def value(self, free: np.ndarray) -> np.ndarray:
        """The value of an unbounded variable."""
        return 1.0 / (1.0 + np.exp(-free)) if self.share else np.exp(free)

    def slope(self, value: np.ndarray) -> np.ndarray:
        """Derivative of the value by its unbounded variable."""
        return value * (1.0 - value) if self.share else value


_SHARED, _HARDWARE = 1.4, 0.5  # over the widths by hand below: chosen on calibration rows, each source left out in turn


def _positive(
    name: str,
    centre: float,
    shared: float,
    *,
    die: float = 0.0,
    family: float = 0.0,
    stack: float = 0.0,
    fabric: float = 0.0,
) -> Parameter:
    wider, die, family = _SHARED * shared, _HARDWARE * die, _HARDWARE * family
    return Parameter(name=name, centre=centre, shared=wider, die=die, family=family, stack=stack, fabric=fabric)


def _share(name: str, centre: float, shared: float, **levels: float) -> Parameter:
    return dataclasses.replace(_positive(name, centre, shared, **levels), share=True)


PARAMETERS = (
    _share("matmul_ceiling", 0.80, 0.3, die=0.33, family=0.12, stack=0.25),
    _share("matmul_8bit_ceiling", 0.90, 0.6, die=0.38, family=0.12, stack=0.4),
    _share("matmul_4bit_ceiling", 0.75, 0.6),
    _positive("matmul_size0", 200.0, 0.5, die=0.2, stack=0.3),
    _share("attention_ceiling", 0.50, 0.4, die=0.38, family=0.12, stack=0.3),
    _share("attention_2_ceiling", 0.45, 0.4, die=0.38, family=0.12, stack=0.2),
    _positive("attention_size0", 512.0, 0.5),
    _positive("unfused_touches", 2.0, 0.3, stack=0.3),
    _share("cast_passes", 0.7, 0.6, stack=0.5),
    _share("hbm_ceiling", 0.85, 0.4, family=0.2, stack=0.3),
    _positive("kernel_s", 3e-6, 0.5, die=0.2, stack=0.4),
    _positive("host_kernel_s", 2e-5, 0.7, family=0.3, stack=0.7),
    _positive("sync_rank_s", 5e-4, 0.3),
    _positive("routing_s", 2e-4, 1.0, family=0.4),
    _positive("microbatch_s", 1e-3, 1.0, stack=0.7),
    _positive(SLOW, 1.0, 0.5),
    _positive("step_s", 2e-2, 0.7, stack=0.7),
    _positive("jitter_s", 2e-3, 1.0, stack=0.7),
    _positive("update_passes", 1.5, 0.4, stack=0.4),
    _share("scale_up_ceiling", 0.9, 0.5, family=0.2, stack=0.5),
    _share("scale_out_ceiling", 0.75, 0.5, family=0.2, stack=0.3, fabric=0.4),
    _positive("congestion", 0.04, 0.6, fabric=0.4),
    _positive("collective_s", 1e-5, 0.5, stack=0.4),
    _positive("ring_step_s", 3e-6, 0.5, fabric=2.0),
    _share("contention", 0.15, 0.7, stack=0.4),
    _share("regather_exposed", 0.3, 0.7),
    _share("hide_tensor", 0.5, 0.8, stack=0.4),
    _share("hide_context", 0.8, 0.8),
    _share("hide_expert", 0.5, 0.8),
    _share("hide_data", 0.8, 0.8, stack=0.5),
    _share("hide_pipeline", 0.8, 0.8),
)  # fmt: skip

Group = Mapping[str, str]
"""The die, family, stack and fabric of one row, by level."""

Key = tuple[str, str, str]
"""One deviation: its parameter, its level (or `SHARED`) and the name within the level."""


@dataclasses.dataclass(frozen=True)
class Design:
    """A sparse linear map: the row's group chooses a row of `table`, whose columns are `own` of the whole vector."""

    own: np.ndarray
    table: np.ndarray
    place: np.ndarray

    def of(self, z: np.ndarray) -> np.ndarray:
        """The variable's deviation from its centre, by row."""
        return (self.table @ z[self.own])[self.place]

    def add(self, jacobian: np.ndarray, slopes: np.ndarray) -> None:
        """Add `slopes` times the map to a Jacobian (rows x whole vector)."""
        jacobian[:, self.own] += slopes[:, None] * self.table[self.place]


def deviations(groups: Sequence[Group]) -> tuple[Key, ...]:
    """The deviations that rows of these groups see, in the order of the vector that holds them."""
    names = {level: sorted({group[level] for group in groups} - {""}) for level in LEVELS}
    keys = [(p.name, SHARED, "") for p in PARAMETERS]
    keys += [(p.name, level, n) for p in PARAMETERS for level in LEVELS if getattr(p, level) for n in names[level]]
    return tuple(keys)


def designs(
    keys: Sequence[Key], groups: Sequence[Group], parameters: Sequence[Parameter] = PARAMETERS
) -> dict[str, Design]:
    """How each parameter's unbounded variable, by row, depends on the vector of the deviations `keys`."""
    unique, place = _unique(groups)
    by_parameter = {}
    for p in parameters:
        own = [j for j, key in enumerate(keys) if key[0] == p.name]
        table = [[_weight(p, keys[j], group) for j in own] for group in unique]
        by_parameter[p.name] = Design(
            np.array(own, dtype=int), np.array(table, float).reshape(len(unique), len(own)), place
        )
    return by_parameter


def _weight(parameter: Parameter, key: Key, group: Group) -> float:
    _, level, member = key
    return getattr(parameter, level) * (level == SHARED or group[level] == member)


def _unique(groups: Sequence[Group]) -> tuple[list[Group], np.ndarray]:
    first: dict[tuple[str, ...], int] = {}
    place = [first.setdefault(tuple(group[level] for level in LEVELS), len(first)) for group in groups]
    return [dict(zip(LEVELS, key, strict=True)) for key in first], np.array(place, dtype=int)
