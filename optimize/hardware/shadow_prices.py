"""What one more dollar or watt would buy, in plain words."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.inputs import Plan
from optimize import units
from optimize.hardware.solving import HardwareSolutions, solve_plans
from optimize.question import Problem

MORE = 0.01  # of a limit, to see where it goes
_WORDS = {
    "flop_per_s": "FLOP/s",
    "hbm_bytes": "HBM bytes",
    "hbm_bytes_per_s": "HBM bandwidth",
    "scale_up_bytes_per_s": "scale-up bandwidth",
    "scale_out_bytes_per_s": "scale-out bandwidth",
}
_LIMITS = {"budget_usd": ("budget", "USD"), "power_w": ("power", "W"), "deadline_s": ("time allowed", "s")}
_LIMITS |= {"carbon_g": ("CO2 allowed", "g")}


def shadow_prices(
    problem: Problem, plans: Sequence[Plan], solved: HardwareSolutions, again: bool = True
) -> dict[str, Any]:
    """What more of each limit buys: per cent of the value for one per cent (right and left), where it goes, in words.

    At these plans; a change that large that another plan wins is worth more. Without `again` nothing is solved for a
    change, and only the multiplier of the limit is told.
    """
    prices = {}
    for name in _LIMITS:
        limit = getattr(problem.limits, name)
        if limit is None or name not in solved.shadow_prices:
            continue
        price, value = float(solved.shadow_prices[name][0]), float(solved.value[0])
        gains, goes = list[float | None](), dict[str, float]()
        if again:
            right, left = (_again(problem, plans, name, limit * (1 + sign * MORE)) for sign in (1.0, -1.0))
            gains = [_per_cent(value, other, sign) for other, sign in ((right, 1.0), (left, -1.0))]
            goes = _goes_to(solved, right)
        prices[name] = {
            "value_per_limit": price,
            "resolved": gains,
            "per_unit": price * value / limit,
            "goes_to": goes,
            "words": _words(name, next((gain for gain in gains[:1] if gain is not None), price), goes),
        }
    return prices | _bytes(solved)


def _bytes(solved: HardwareSolutions) -> dict[str, Any]:
    """What the memory costs that the plan needs; nothing where the least that is offered is more."""
    price = float(solved.need_prices.get("hbm_bytes", np.zeros(1))[0])
    if price < 5e-4:
        return {}
    need_bytes = float(solved.model.needs["hbm_bytes"][0])
    return {
        "hbm_bytes": {
            "value_per_limit": price,
            "per_unit": price * float(solved.value[0]) / need_bytes,
            "words": f"a plan that needed 1 % less HBM would be {units.significant(price, 2)} % better",
        }
    }


def _again(problem: Problem, plans: Sequence[Plan], name: str, limit: float) -> HardwareSolutions:
    changed = dataclasses.replace(problem.limits, **{name: limit})
    return solve_plans(dataclasses.replace(problem, limits=changed), plans)


def _per_cent(value: float, other: HardwareSolutions, sign: float) -> float | None:
    """Change of the logarithm of the value, lower being better, for one of the logarithm of the limit."""
    new = float(other.value[0])
    return float(-np.log(new / value) / np.log1p(sign * MORE)) if np.isfinite(new) else None


def _goes_to(before: HardwareSolutions, after: HardwareSolutions) -> dict[str, float]:
    """Per cent that each rate and size grows by, for one per cent more of the limit; what does not change left out."""
    if not np.isfinite(after.value[0]):
        return {}
    change = (after.logs[0] - before.logs[0]) / np.log1p(MORE)
    return {name: float(part) for name, part in zip(before.model.names, change, strict=True) if abs(part) > 0.01}


def _words(name: str, gain: float, goes: Mapping[str, float]) -> str:
    what, _ = _LIMITS[name]
    if abs(gain) < 5e-4:
        return f"more {what} buys nothing: it is not what limits this answer"
    most = max(goes, key=lambda part: goes[part], default=None)
    told = f"the next 1 % of {what} buys {units.significant(gain, 2)} %"
    return told if most is None else f"{told}, and should go to {_WORDS.get(most, most)}"
