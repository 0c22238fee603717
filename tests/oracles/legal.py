"""Which plans are legal, as the README and DESIGN (section 4, Plan, Options, Placement) say it, for one plan in loops.

It shares no code with the package: the sizes of each model are written here by hand from its publication or from its
builder's arguments, and ranks of groups are counted one by one.
"""

import functools
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from costmodel.inputs.cluster import Cluster
from costmodel.inputs.plan import Plan


class Model(NamedTuple):
    """What a plan divides of a model."""

    layers: int
    sequence: int
    batch: int
    tensor: tuple[int, ...] = ()  # heads and widths of the layers
    key_values: tuple[int, ...] = ()  # heads that may be replicated
    heads: tuple[int, ...] = ()  # of every attention
    experts: tuple[int, ...] | None = None  # None: a model without a second mesh
    expert_widths: tuple[int, ...] = ()


MODELS = {
    "dense": Model(6, 128, 12, (8, 256, 1024), (4,), (8,)),
    "dense of 8": Model(8, 128, 16, (8, 256, 1024), (4,), (8,)),
    "experts": Model(5, 128, 16, (8, 128, 512, 96), (), (8,), (16,), (96, 192)),
    "encoder-decoder": Model(6, 24, 12, (6, 48, 96), (), (6,)),
    "swin": Model(4, 256, 24, (2, 4, 16, 32, 64, 128), (), (2, 4)),
    "dlrm": Model(1, 1, 24, (), (), (), ()),
    "llama3-70b": Model(80, 8192, 512, (64, 8192, 28672), (8,), (64,)),
    "deepseek-v3": Model(61, 4096, 96, (128, 18432, 2048), (), (128,), (256,), (2048, 4096)),
}
WHOLE_STAGES = ("gpipe", "one_f_one_b", "interleaved")  # schedules whose passes are not split
FEWEST = {
    "zb_h1": lambda stages: stages,
    "zb_h2": lambda stages: 2 * stages - 1,
    "zb_v": lambda stages: 2 * stages,
    "dualpipe": lambda stages: 2 * stages,
}
TYPES = {"fp8_tensor": "fp8", "fp8_block": "fp8"}  # other precisions are called as their number formats


def legal(plan: Plan, model: Model, cluster: Cluster) -> bool:
    """Whether a plan keeps every rule."""
    return all(_kept(plan, model, cluster)) and (cluster.partial_domains or _placed(plan, cluster))


def _divides(part: int, whole: int) -> bool:
    return whole // part * part == whole


def _kept(plan: Plan, model: Model, cluster: Cluster) -> Iterator[bool]:
    """Every rule but the placement, one after another: later ones may rely on those before."""
    ranks = plan.data * plan.context
    yield plan.tensor * plan.context * plan.data * plan.pipeline == cluster.accelerators
    yield _divides(plan.data * plan.microbatch, model.batch)
    yield all(_divides(plan.tensor, size) for size in model.tensor)
    yield all(_divides(plan.tensor, few) or _divides(few, plan.tensor) for few in model.key_values)
    yield _divides(plan.context, model.sequence)
    if plan.sequence_parallel:
        yield plan.tensor > 1 and _divides(plan.tensor * plan.context, model.sequence)
    if plan.context > 1 and plan.context_kind == "all_to_all":
        yield all(_divides(plan.tensor * plan.context, heads) for heads in model.heads)
    yield from _pipelined(plan, model)
    if plan.data_shard is not None:
        yield plan.zero_stage in (1, 2, 3) and _divides(plan.data_shard, ranks)
    domain = _domain(plan, cluster)
    yield domain <= cluster.tiers[0].size
    yield cluster.accelerators <= domain or _divides(domain, cluster.accelerators)
    yield TYPES.get(plan.precision, plan.precision) in cluster.accelerator.types
    if cluster.accelerator.second_memory_bytes == 0:
        yield not plan.offloads
    yield from _mixed(plan, model)


def _pipelined(plan: Plan, model: Model) -> Iterator[bool]:
    microbatches = model.batch // (plan.data * plan.microbatch)
    if plan.schedule == "interleaved":
        yield plan.pipeline > 1 and plan.virtual_stages > 1 and _divides(plan.pipeline, microbatches)
    else:
        yield plan.virtual_stages == 1
        yield microbatches >= FEWEST.get(plan.schedule, lambda _: 1)(plan.pipeline)
    chunks = 2 if plan.schedule == "zb_v" else plan.virtual_stages
    yield plan.schedule != "zb_v" or plan.pipeline > 1
    yield plan.schedule != "dualpipe" or plan.pipeline % 2 == microbatches % 2 == 0
    if plan.stage_layers is None:
        yield _divides(plan.pipeline * chunks, model.layers)
    else:
        yield plan.schedule in WHOLE_STAGES
        yield len(plan.stage_layers) == plan.pipeline and sum(plan.stage_layers) == model.layers
        yield all(held >= plan.virtual_stages for held in plan.stage_layers)


def _mixed(plan: Plan, model: Model) -> Iterator[bool]:
    """The mesh of experts, folded into tensor x context x data."""
    if model.experts is None:
        yield plan.expert == plan.expert_tensor == 1
        return
    yield _divides(plan.expert * plan.expert_tensor, plan.tensor * plan.context * plan.data)
    yield plan.sequence_parallel or plan.tensor == 1
    yield all(_divides(plan.expert, experts) for experts in model.experts)
    yield all(_divides(plan.expert_tensor, width) for width in model.expert_widths)


def _domain(plan: Plan, cluster: Cluster) -> int:
    return cluster.tiers[0].usable_size if plan.domain is None else plan.domain


def _placed(plan: Plan, cluster: Cluster) -> bool:
    """Every group has as many ranks in each domain that it touches as the formula of `placement` says."""
    inner, total = cluster.tiers[0], int(cluster.accelerators)
    sizes = [_domain(plan, cluster) * tier.usable_size / inner.usable_size for tier in cluster.tiers[:-1]]
    return all(_even(group, stride, size, total) for size in sizes for group, stride in _groups(plan))


@functools.cache
def _even(group: int, stride: int, size: float, total: int) -> bool:
    met = Counter((rank // (group * stride), rank % stride, rank // size) for rank in range(total))
    return set(met.values()) == {max(1, min(group, size / stride))}


def _groups(plan: Plan) -> Iterator[tuple[int, int]]:
    """Size and stride of each group of ranks, those of both meshes from the inside out."""
    ranks = plan.data * plan.context
    sharing = ranks if plan.data_shard is None else plan.data_shard
    sharing = 1 if plan.zero_stage == 0 else sharing
    yield from _nested((plan.tensor, plan.context))
    yield from _nested((plan.tensor, sharing, ranks // sharing, plan.pipeline))
    if plan.expert * plan.expert_tensor > 1:
        holders = plan.tensor * plan.context * plan.data // (plan.expert * plan.expert_tensor)
        own = min(sharing, holders)
        yield from _nested((plan.expert_tensor, plan.expert, own, holders // own))


def _nested(mesh: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    stride = 1
    for group in mesh:
        yield group, stride
        stride *= group
