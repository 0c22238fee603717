r"""What is asked of a cluster and its plans: an objective and limits.

Every objective is a product of powers of three quantities: seconds $T$ to train, dollars a second $K$ (the purchase
written off over its life, and electricity) and watts $P$ at the meter, by how busy the units are (economics.py: what
`explain` tells); $g$ grams of CO2 a joule. Each product is log-convex in the hardware at fixed plans, so that one
tangent in logarithms bounds it. Limits of the power are of servers at what is usual in training: the mean of a step is
not log-convex, and a site is built for more. A limit of CO2 is one of $T P g$, with what the step draws.

    time $T$    cost $T K$    energy $T P$    CO2 $T P g$    tokens a dollar $D / (T K)$    tokens a joule $D / (T P)$
"""

import dataclasses
import enum

from costmodel import Scalar, strict
from costmodel.specs import FLAG, LEAVES, check_fields

SECONDS_A_DAY = 86_400.0


class Objective(enum.Enum):
    """The one table of what can be best: plans, hardware, clusters, commands and reports read it."""

    step = ("step_s", "s", "seconds of a step")
    time = ("time_s", "s", "seconds to train the tokens")
    cost = ("cost_usd", "USD", "dollars to train the tokens: purchase written off, and electricity", 1.0)
    energy = ("energy_j", "J", "joules to train the tokens, at the meter", 0.0, 1.0)
    carbon = ("carbon_g", "g", "grams of CO2 of the electricity to train the tokens", 0.0, 1.0, False, True)
    tokens_per_usd = ("tokens_per_usd", "tokens/USD", "tokens for a dollar", 1.0, 0.0, True)
    tokens_per_joule = ("tokens_per_j", "tokens/J", "tokens for a joule at the meter", 0.0, 1.0, True)

    def __init__(
        self,
        key: str,  # on the command line and in JSON, with its unit
        unit: str,
        meaning: str,
        usd_power: float = 0.0,  # of dollars a second in what is minimised
        watt_power: float = 0.0,  # of watts at the meter in what is minimised
        maximised: bool = False,
        emits: bool = False,  # grams of CO2 of the grid, by the watts
    ) -> None:
        self.key, self.unit, self.meaning = key, unit, meaning
        self.usd_power, self.watt_power = usd_power, watt_power
        self.maximised, self.emits = maximised, emits

    @property
    def priced(self) -> bool:
        """Whether hardware is paid for, so that more of it can be worse."""
        return bool(self.usd_power or self.watt_power)

    def price(self, usd_per_s: Scalar, meter_w: Scalar, carbon_g_per_j: Scalar = 0.0) -> Scalar:
        """What multiplies the seconds."""
        if self.usd_power:
            return usd_per_s
        if self.emits:
            return carbon_g_per_j * meter_w
        return meter_w if self.watt_power else 1.0

    def reported(self, least: float, tokens: float) -> float:
        """The value of a minimised quantity for so many tokens: itself, or tokens over it."""
        return tokens / least if self.maximised else least


CLEAN = "expected electricity that emits CO2, and its `carbon_g_per_kwh` is 0: so are all answers"
"""Why grams of CO2 neither compare nor limit anything."""

RENTALS = {"reserved": "low", "on_demand": "high"}
"""Ends of the range of each rental price: reserved for a year or more (or spot), and by the hour."""


LIMITED = ("budget_usd", "power_w", "accelerators", "deadline_s", "carbon_g")
_OF_LIMITS = dict.fromkeys(LIMITED, dataclasses.replace(LEAVES, optional=True)) | {"rent": FLAG}


@strict
@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What the cluster may cost, draw and hold. None: not limited. Points of a frontier are arrays of limits."""

    budget_usd: float | None = None
    rent: bool = False  # the budget is spent while training; else it is the purchase
    rental: str = "base"  # which of the rental prices is paid: one of `RENTALS`' values
    power_w: float | None = None  # at the facility's meter
    accelerators: int | None = None
    deadline_s: float | None = None  # for all jobs together
    carbon_g: float | None = None  # of CO2, of the electricity to train all jobs

    def __post_init__(self) -> None:
        """Raise `SpecError` for a value that no limit has."""
        check_fields("Limits", self, _OF_LIMITS)
