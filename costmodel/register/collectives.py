"""`register_collective`: an algorithm whose time is a log-convex law of the fabric, tried on random ones."""

import functools
import itertools
import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from costmodel.exact import Exact
from costmodel.formulas import COLLECTIVES, Law, collectives
from costmodel.inputs import Stack, Tier
from costmodel.pytree import map_leaves
from costmodel.register.sealed import SEALED, opened, sealed
from costmodel.register.tables import entered, identifier, number, refuse
from costmodel.semantics import Semantics
from costmodel.specs import SpecError, called, nearest, show

_CHORDS, _SEED = 64, 0
_ROUNDING = 1e-9  # in log, of a sum of some dozen positive terms: anything above is no rounding
_RANKS = ((8.0,), (4.0, 8.0), (1.0, 8.0), (8.0, 1.0), (4.0, 2.0, 4.0))  # of one group on each tier
_PAYLOADS_BYTES = (1e3, 1e6, 1e9)
_SPREADS = ((1.0,), (0.4,))  # of an all-to-all, which takes it as one argument more
_NUMPY = Exact(np)
_NOTHING = 1e-30  # seconds: roots of nothing are not quite nothing

Fabric = tuple[tuple[Tier, ...], Stack]


def register_collective(kind: str, name: str, algorithm: Callable[..., Law]) -> ExitStack:
    """Add an algorithm of all_reduce, all_gather, all_to_all or neighbour, which a `Stack` then chooses by its name.

    Where it is used as a context, the algorithm is gone after it. Raises a `ValueError` of one line unless it gives,
    on small fabrics of one to three tiers, a `Law` that is finite, never negative, zero for a group of one, no faster
    with slower links and log-convex in bandwidths and latencies; for arrays as for numbers.
    """
    if kind not in COLLECTIVES:
        raise SpecError(f"collective: the kind is {show(kind)}; {nearest(str(kind), COLLECTIVES)}")
    where = f'{kind} "{identifier(kind, name)}"'
    with entered(COLLECTIVES[kind], kind, name, algorithm) as added:
        for ranks, spread in itertools.product(_RANKS, _SPREADS if kind == "all_to_all" else ((),)):
            group = " x ".join(f"{n:g}" for n in ranks) + " ranks" + "".join(f", spread {s:g}" for s in spread)
            fabric = functools.partial(_fabric, {kind: name}, len(ranks))
            _check(f"{where}, {group}", ranks, functools.partial(_law, algorithm, spread), fabric)
        return added.pop_all()


def _fabric(chosen: dict[str, Any], tiers: int, logs: Any) -> Fabric:
    """Links at 300 GB/s inside and 30 outside, 1 and 5 us away, each times the exponential of a row."""
    times = np.exp(logs)
    nested = tuple(
        Tier(
            name=f"tier{i + 1}",
            size=8 ** (i + 1),
            usable_size=8 ** (i + 1),
            bandwidth_bytes_per_s=(3e11 if i == 0 else 3e10) * times[i],
            latency_s=(1e-6 if i == 0 else 5e-6) * times[tiers + i],
        )
        for i in range(tiers)
    )
    return nested, Stack(collective_ramp=0.5, collective_s=8e-6 * times[-1], **chosen)


def _law(
    algorithm: Callable[..., Law],
    spread: tuple[float, ...],
    where: str,
    ranks: tuple[Any, ...],
    fabric: Fabric,
    sem: Semantics,
) -> Law:
    """What the algorithm gives; a `SpecError` where that is no law of these tiers."""
    tiers, stack = fabric
    law = called(where, algorithm, ranks, tiers, stack, sem, *spread)
    if not isinstance(law, Law) or len(law.by_tier) != len(tiers):
        refuse(where, "what it returns", law, f"a `Law` with a number for each of {len(tiers)} tiers")
    return law


def _check(where: str, ranks: tuple[float, ...], law: Callable[..., Law], fabric: Callable[[Any], Fabric]) -> None:
    """One shape of groups: numbers first, then arrays of fabrics and of points between them."""
    variables, rng = 2 * len(ranks) + 1, np.random.default_rng(_SEED)
    _check_numbers(where, law(where, ranks, fabric(np.zeros(variables)), Exact(math)))
    alone = law(f"{where}, a group of one", (1.0,) * len(ranks), fabric(np.zeros(variables)), Exact(math))
    for name, value in _leaves(alone):
        if abs(value) > _NOTHING:
            refuse(f"{where}, a group of one", f"`{name}`", float(value), "0")
    arrays = tuple(sealed(np.full(_CHORDS, n)) for n in ranks)

    def seconds(logs: Any) -> dict[str, Any]:
        """Seconds in arrays that know arithmetic only, so that what passes can be traced."""
        return _figures(map_leaves(opened, law(where, arrays, map_leaves(sealed, fabric(logs)), SEALED)))

    first, second = rng.uniform(-1.5, 1.5, (2, variables, _CHORDS))
    _check_slower(where, seconds, first, len(ranks))
    _check_convex(where, seconds, first, second, rng.uniform(0, 1, _CHORDS))


def _check_numbers(where: str, law: Law) -> None:
    for name, value in _leaves(law):
        if not math.isfinite(value) or value < 0:
            refuse(where, f"`{name}`", float(value), "a finite number >= 0")


def _check_slower(where: str, seconds: Callable[[Any], dict[str, Any]], logs: Any, tiers: int) -> None:
    """Half the bandwidth of a tier never makes it faster."""
    before = seconds(logs)
    for tier in range(tiers):
        slower = logs.copy()
        slower[tier] -= math.log(2.0)
        for words, after in seconds(slower).items():
            worst = int(np.argmin(after / before[words]))
            if after[worst] < before[words][worst] * (1 - _ROUNDING):
                told = f"at least the {number(before[words][worst])} s of the whole"
                refuse(where, f"{words} at half the bandwidth of tier {tier + 1}", f"{number(after[worst])} s", told)


def _check_convex(where: str, seconds: Callable[[Any], dict[str, Any]], first: Any, second: Any, weight: Any) -> None:
    """Between two fabrics it takes no longer than the chord says, in logarithms."""
    one, other = seconds(first), seconds(second)
    for words, values in seconds((1 - weight) * first + weight * second).items():
        chord = one[words] ** (1 - weight) * other[words] ** weight
        worst = int(np.argmax(values / chord))
        if values[worst] > chord[worst] * (1 + _ROUNDING):
            told = f"at most {number(chord[worst])} s, the chord between two fabrics (log-convexity)"
            refuse(where, words, f"{number(values[worst])} s", told)


def _leaves(law: Law) -> list[tuple[str, Any]]:
    others = ("seconds_per_byte", "latency_s", "ramp")
    return [*((f"by_tier[{i}]", busy) for i, busy in enumerate(law.by_tier)), *((n, getattr(law, n)) for n in others)]


def _figures(law: Law) -> dict[str, Any]:
    """Seconds by what they are of, where they are not zero: calls of each payload, and a gigabyte on each tier."""
    law = map_leaves(lambda leaf: np.broadcast_to(np.asarray(leaf, float), (_CHORDS,)), law)
    seconds = {f"the time of {size:g} bytes": collectives.time_s(law, size, _NUMPY) for size in _PAYLOADS_BYTES}
    seconds |= {f"the time of 1e+09 bytes on tier {i + 1}": 1e9 * busy for i, busy in enumerate(law.by_tier)}
    return {words: values for words, values in seconds.items() if np.all(values > 0)}
