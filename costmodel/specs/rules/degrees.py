"""Rules of the degrees of the first mesh: tensor, context, data, pipeline, and what they divide."""

from collections.abc import Iterator

from costmodel.specs.files import show
from costmodel.specs.rules.demands import Demands, Rule


def accelerators(d: Demands) -> Iterator[Rule]:
    """The degrees multiply to the cluster."""
    count = d.cluster.accelerators
    yield Rule(
        ("accelerators",),
        lambda p: p.accelerators == count,
        lambda p: (
            f"`tensor` x `context` x `data` x `pipeline` is {show(p.accelerators)}; "
            f"expected the cluster's {count} accelerators"
        ),
    )


def batch(d: Demands) -> Iterator[Rule]:
    """Every replica has whole microbatches."""
    yield Rule(
        ("data", "microbatch"),
        lambda p: d.workload.batch % (p.data * p.microbatch) == 0,
        lambda p: (
            f"`data` x `microbatch` is {show(p.data * p.microbatch)}; "
            f"expected a divisor of the batch of {d.workload.batch} sequences"
        ),
    )


def tensor(d: Demands) -> Iterator[Rule]:
    """Heads and widths of the layers; the vocabulary may be padded, and scarce key-value heads are replicated."""
    for limit, what in d.tensor_limits:
        yield Rule(
            ("tensor",),
            lambda p, limit=limit: (limit % p.tensor == 0) | (p.tensor % limit == 0),
            lambda p, limit=limit, what=what: (
                f"`tensor` is {show(p.tensor)}; expected a divisor or a multiple of the {limit} {what}"
            ),
        )
    for size, what in d.tensor_divides:
        yield Rule(
            ("tensor",),
            lambda p, size=size: size % p.tensor == 0,
            lambda p, size=size, what=what: f"`tensor` is {show(p.tensor)}; expected a divisor of the {size} {what}",
        )


def sequence(d: Demands) -> Iterator[Rule]:
    """Tokens of a sequence: context divides them, and tensor where it splits what lies between its regions."""
    tokens = d.workload.sequence
    yield Rule(
        ("tensor", "sequence_parallel"),
        lambda p: (p.sequence_parallel == 0) | (p.tensor > 1),
        lambda p: "`sequence_parallel` is true with `tensor` 1; expected `tensor` > 1",
    )
    yield Rule(
        ("context",),
        lambda p: tokens % p.context == 0,
        lambda p: f"`context` is {show(p.context)}; expected a divisor of the sequence of {tokens} tokens",
    )
    yield Rule(
        ("tensor", "context", "sequence_parallel"),
        lambda p: (p.sequence_parallel == 0) | (tokens % p.context != 0) | (tokens % (p.tensor * p.context) == 0),
        lambda p: (
            f"`tensor` x `context` is {show(p.tensor * p.context)}; expected a divisor of the sequence of "
            f"{tokens} tokens, because `sequence_parallel` divides it by both"
        ),
    )


def heads_over_context(d: Demands) -> Iterator[Rule]:
    """An all-to-all gives every context rank whole heads."""
    for heads in d.heads:
        yield Rule(
            ("tensor", "context", "context_kind"),
            lambda p, heads=heads: (
                (p.context_kind != "all_to_all") | (p.context == 1) | (heads % (p.tensor * p.context) == 0)
            ),
            lambda p, heads=heads: (
                f"`tensor` x `context` is {show(p.tensor * p.context)}; expected a divisor of the {heads} "
                "heads, which `context_kind` all_to_all divides by both"
            ),
        )


def experts(d: Demands) -> Iterator[Rule]:
    """Expert parallelism: degrees of the second mesh, expert_tensor x expert, folded into the first."""
    if not d.has_experts:
        yield Rule(
            ("expert", "expert_tensor"),
            lambda p: p.expert * p.expert_tensor == 1,
            lambda p: (
                f"`expert` x `expert_tensor` is {show(p.expert * p.expert_tensor)}; expected 1, because "
                f"{d.workload.name} has no experts"
            ),
        )
        return
    yield Rule(
        ("expert", "expert_tensor", "tensor", "context", "data"),
        lambda p: (p.tensor * p.context * p.data) % (p.expert * p.expert_tensor) == 0,
        lambda p: (
            f"`expert` x `expert_tensor` is {show(p.expert * p.expert_tensor)}; expected a divisor of `tensor` x "
            f"`context` x `data` ({show(p.tensor * p.context * p.data)})"
        ),
    )
    yield Rule(
        ("tensor", "sequence_parallel"),
        lambda p: (p.tensor == 1) | (p.sequence_parallel != 0),
        lambda p: f"`tensor` is {show(p.tensor)} for a model with experts; expected `sequence_parallel` with it",
    )
    for name, size, what in d.expert_divides:
        yield Rule(
            (name,),
            lambda p, name=name, size=size: size % getattr(p, name) == 0,
            lambda p, name=name, size=size, what=what: (
                f"`{name}` is {show(getattr(p, name))}; expected a divisor of the {size} {what}"
            ),
        )
