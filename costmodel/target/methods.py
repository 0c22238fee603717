r"""Methods beside plans: what each changes in a step (a `MethodRow`, a narrower model) and in the number of rounds.

| method | sent | kept besides | rounds |
| plain | all, summed | | gradient descent |
| local steps | all, once in $\tau$ steps | | of $\tau$ steps each; biased unless workers agree on the optimum |
| dcgd | K random coordinates, unlike | | to a neighbourhood |
| diana | the same | a shift | to the optimum |
| ef21 | K largest, unlike | an estimate | to the optimum |
| subnetworks | 1/n of the layers' weights | | independent subnetworks, plain masks: biased |

Sources: `costmodel.convergence.rates`. Subnetworks divide the hidden neurons and the heads of every layer over the
workers, input, output and the stream between layers stay whole (GIST, Wolfe et al. 2023, section 3).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from costmodel.convergence import RATES, Rate, reaches
from costmodel.convergence import rounds as rounds_of
from costmodel.inputs import MethodRow, PlanPoint, Position, Size, Workload
from costmodel.semantics import Scalar, Semantics, Verdict

Method = Mapping[str, Any]
"""`row`, `narrow` (whether a worker trains a part of each layer), `rate` (of `RATES`), `numbers` (that this reads),
`local` (steps of a round)."""


def plain() -> Method:
    """Gradients of all data ranks are summed in every step."""
    return _method("gradient_descent")


def local(steps: Scalar) -> Method:
    """So many steps alone, then the mean of all models."""
    row = MethodRow(per_step=1.0 / steps)
    return _method("local_steps", row, {"local": steps}, local=steps)


def compressed(share: Scalar, rate: str = "dcgd", unlike: float = 1.0) -> Method:
    """A share of the coordinates of every gradient, of other ones on every rank: `dcgd`, `diana` or `ef21`.

    `unlike` 0: summed on their way by a server or by switches, so that a rank sends and receives what it keeps, as
    papers count it; 1: gathered from all ranks.
    """
    row = MethodRow(payload=share, unlike=unlike, state_bytes=0.0 if rate == "dcgd" else 4.0)
    return _method(rate, row, {"omega": 1.0 / share - 1.0, "alpha": share})


def subnetworks() -> Method:
    """Every worker trains its own part of each layer, of which it alone has the new weights in a round."""
    return _method("plain_subnetworks", narrow=True)


METHODS: Mapping[str, Callable[[], Method]] = {
    "plain": plain,
    "local 4": lambda: local(4.0),
    "local 32": lambda: local(32.0),
    "dcgd 1/8": lambda: compressed(1 / 8),
    "diana 1/8": lambda: compressed(1 / 8, "diana"),
    "ef21 1/8": lambda: compressed(1 / 8, "ef21"),
    "diana 1/8 by server": lambda: compressed(1 / 8, "diana", 0.0),
    "subnetworks": subnetworks,
}
"""Those that are compared, by name."""


def _method(rate: str, row: MethodRow | None = None, numbers: Any = None, **other: Any) -> Method:
    return {"row": row or MethodRow(), "narrow": False, "rate": rate, "numbers": numbers or {}, "local": 1.0} | other


def applied(method: Method, workload: Workload, point: PlanPoint) -> tuple[Workload, PlanPoint]:
    """Workload and point of one worker's step under a method, for `cost`; for points of ZeRO 0."""
    narrow = narrowed(workload, point.data) if method["narrow"] else workload
    return narrow, dataclasses.replace(point, method=method["row"])


def narrowed(workload: Workload, workers: Scalar) -> Workload:
    """The part of a model that one of so many workers trains: what tensor ranks would divide inside the layers."""
    blocks = (b if b.position != Position.LAYER else _narrow(b, workers) for b in workload.blocks)
    return dataclasses.replace(workload, blocks=tuple(blocks))


def _narrow(tree: Any, workers: Scalar) -> Any:
    if isinstance(tree, Size):
        return dataclasses.replace(tree, value=tree.value / workers) if "tensor" in tree.split else tree
    if isinstance(tree, tuple):
        return tuple(_narrow(part, workers) for part in tree)
    if not dataclasses.is_dataclass(tree) or isinstance(tree, type):
        return tree
    names = [f.name for f in dataclasses.fields(tree) if not f.metadata.get("static")]
    return dataclasses.replace(tree, **{name: _narrow(getattr(tree, name), workers) for name in names})


def rate_of(method: Method, problem: Mapping[str, Scalar]) -> Rate:
    """The rate of a method on a problem of these constants (`convergence.constants`, and those of plain masks)."""
    return RATES[method["rate"]](**{**problem, **method["numbers"]})


def arrives(method: Method, problem: Mapping[str, Scalar], target: Scalar) -> Verdict:
    """Whether its floor is below the target."""
    return reaches(rate_of(method, problem), target)


def steps_to(method: Method, problem: Mapping[str, Scalar], target: Scalar, sem: Semantics) -> Scalar:
    """Steps to a relative squared error above its floor, local ones counted."""
    return method["local"] * rounds_of(rate_of(method, problem), target, sem)
