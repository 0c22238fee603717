"""Rules of groups of ranks: how many share weights, and how each group lies in the domains of the tiers."""

from collections.abc import Callable, Iterator
from typing import Any

from costmodel.formulas import domain_sizes, nests
from costmodel.specs.files import show
from costmodel.specs.rules.demands import Columns, Demands, Mask, Rule, domain_of


def data_shard(_: Demands) -> Iterator[Rule]:
    """Ranks that share weights: a divisor of data x context, and only where ZeRO divides something."""
    yield Rule(
        ("data_shard", "data", "context"),
        lambda p: (p.data * p.context) % _asked_shard(p) == 0,
        lambda p: (
            f"`data_shard` is {show(p.data_shard)}; expected a divisor of `data` x `context` "
            f"({show(p.data * p.context)})"
        ),
    )
    yield Rule(
        ("data_shard", "zero_stage"),
        lambda p: (p.data_shard == 0) | (p.zero_stage > 0),
        lambda p: f"`data_shard` is {show(p.data_shard)} with `zero_stage` 0; expected `zero_stage` 1 to 3",
    )


def _choose(mask: Mask, chosen: Any, other: Any) -> Any:
    """One of two integers, or of two arrays of them element by element."""
    return other + mask * (chosen - other)


def _asked_shard(p: Columns) -> Any:
    return _choose(p.data_shard == 0, p.data * p.context, p.data_shard)


def _shard(p: Columns) -> Any:
    """Ranks that share weights."""
    return _choose(p.zero_stage == 0, 1, _asked_shard(p))


def _replicas(p: Columns) -> Any:
    """Groups of ranks that each hold all weights; 1 where the shard is larger than all ranks."""
    count = p.data * p.context // _shard(p)
    return count + (count == 0)


def _mesh(p: Columns) -> Any:
    """Ranks that hold one set of experts."""
    return p.expert * p.expert_tensor


def _holders(p: Columns) -> Any:
    """Ranks that hold the same part of the experts; 1 without expert parallelism, where they are no group of theirs."""
    count = p.tensor * p.context * p.data // _mesh(p)
    return _choose((_mesh(p) == 1) | (count == 0), 1, count)


def _expert_shard(p: Columns) -> Any:
    """Those of them that share weights."""
    shard = _asked_shard(p)
    return _choose(p.zero_stage == 0, 1, _choose(_holders(p) < shard, _holders(p), shard))


def _expert_replicas(p: Columns) -> Any:
    return _holders(p) // _expert_shard(p)


_Group = tuple[str, tuple[str, ...], Callable[[Columns], Any], Callable[[Columns], Any]]
"""Name, the columns that it reads, size and stride."""

_RANKS = ("tensor", "context", "data")
_SHARDS = (*_RANKS, "zero_stage", "data_shard")
_EXPERTS = ("expert", "expert_tensor")
_GROUPS: tuple[_Group, ...] = (
    ("tensor", ("tensor",), lambda p: p.tensor, lambda p: 1),
    ("context", ("tensor", "context"), lambda p: p.context, lambda p: p.tensor),
    ("data shard", _SHARDS, _shard, lambda p: p.tensor),
    ("replica", _SHARDS, _replicas, lambda p: p.tensor * _shard(p)),
    ("pipeline", (*_RANKS, "pipeline"), lambda p: p.pipeline, lambda p: p.tensor * p.context * p.data),
    ("expert tensor", ("expert_tensor",), lambda p: p.expert_tensor, lambda p: 1),
    ("expert", _EXPERTS, lambda p: p.expert, lambda p: p.expert_tensor),
    ("expert data shard", (*_SHARDS, *_EXPERTS), _expert_shard, _mesh),
    ("expert replica", (*_SHARDS, *_EXPERTS), _expert_replicas, lambda p: _mesh(p) * _expert_shard(p)),
)


def groups(p: Columns) -> tuple[tuple[str, Any, Any], ...]:
    """Name, size and stride of each group of ranks, from the inside out, then those of the experts' mesh."""
    return tuple((name, group(p), stride(p)) for name, _, group, stride in _GROUPS)


def placement(d: Demands) -> Iterator[Rule]:
    """Groups nest in the domains of every tier but the last: elsewhere `ranks_by_tier` would only be a mean."""
    if d.cluster.partial_domains:
        return
    for i, tier in enumerate(d.cluster.tiers[:-1]):
        for group in _GROUPS:
            yield _nesting(d, i, tier.name, group)


def _nesting(d: Demands, i: int, tier: str, of: _Group) -> Rule:
    name, reads, group, stride = of

    def size(p: Columns) -> Any:
        return domain_sizes(d.cluster.tiers, domain_of(d, p))[i]

    return Rule(
        (*reads, "domain", "accelerators"),
        lambda p: nests(group(p), stride(p), size(p), p.accelerators),
        lambda p: (
            f"the {name} group of {show(group(p))} ranks at stride {show(stride(p))} does not nest in "
            f"the {size(p):g} accelerators of a domain of tier {tier}; expected degrees that fill it evenly, or "
            "`partial_domains`"
        ),
    )
