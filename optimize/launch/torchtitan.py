"""torchtitan: a function that changes a configuration, as recipes are written since TOML went (2026-02-23).

Names: torchtitan/config/configs.py of the release 0.3.0; with `--framework-version main` those of
torchtitan/config/parallelism.py at 15e2431, training.py at f204eb6 and README.md at 1b4a5ca ("change the configuration
directly ... instead of using CLI flags"). Read are both, the flags `--parallelism.tensor_parallel_degree 8` of the same
names, and the TOML files of releases to 0.2; schedules: torch.distributed.pipelining.schedules.get_schedule_class, and
orders of one's own (`orders`).

How fields are read: weights are shared by `data_parallel_shard_degree` x context ranks. FSDP that gathers weights
again for the backward pass ("always") is ZeRO 3; that keeps them and reduces each microbatch's gradients is ZeRO 2;
that defers the reduction to the last one is ZeRO 1 (which 0.3.0 cannot); replicas alone are ZeRO 0. Full recompute is
an object of torchtitan/distributed/activation_checkpoint.py (as in torchtitan_recipes/models/llama3.py at 03d9819).
Number formats below 16 bits, asynchronous tensor parallelism and the kind of context parallelism are transforms of the
model and not fields: context ranks are taken to gather keys and values before the attention.
"""

import dataclasses
import functools
import math
from collections import ChainMap
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from costmodel.inputs import OWN_SCHEDULES, SCHEDULES, Plan, Workload
from costmodel.specs import SpecError
from optimize.launch import text as _text
from optimize.launch.dimensions import Dimensions
from optimize.launch.framework import Alternative, Framework, Job, Known, Reader, Settings, divided, has_experts
from optimize.launch.orders import SUFFIX, order_file

TITLES = {"gpipe": "GPipe", "one_f_one_b": "1F1B", "interleaved": "Interleaved1F1B", "zb_v": "ZBVZeroBubble"}
RESHARD = {1: ("never", True), 2: ("never", False), 3: ("always", False)}
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
P, T = "parallelism.", "training."
SCHEDULE, ORDER = P + "pipeline_parallel_schedule", P + "pipeline_parallel_schedule_csv"
REMATS = {
    "FullActivationRematConfig()": "full", "FullAC.Config()": "full", "None": "none", "SelectiveAC.Config()": "none",
}  # fmt: skip
MODELS = {
    ("llama3", "8B"): "llama3-8b", ("llama3", "70B"): "llama3-70b", ("llama3", "405B"): "llama3-405b",
    ("deepseek_v3", "671B"): "deepseek-v3", ("qwen3", "235B-A22B"): "qwen3-235b-a22b",
}  # fmt: skip
"""Models of released versions, by `model.name` and `model.flavor`."""

_ANY = {
    "schedule": ChainMap[str, Any](OWN_SCHEDULES, TITLES),  # names: those of one's own too, in a file (`orders`)
    "zero_stage": (0, 1, 2, 3),
    "sequence_parallel": (True, False),
    "context_kind": ("ring",),
    "recompute": ("none", "full"),
    "recompute_share": (1.0,),
    "expert_tensor": (1,),
    "overlap_data": (True,),
    "precision": tuple(DTYPES),
    "gradient_dtype": tuple(DTYPES),
}
NEWER: tuple[Alternative, ...] = (_ANY | {"context": (1,)}, _ANY | {"overlap_context": (False,)})
_RELEASED = {"gradient_dtype": ("fp32",), "zero_stage": (0, 2, 3)}
ALTERNATIVES: tuple[Alternative, ...] = (
    *(each | _RELEASED for each in NEWER),
    NEWER[0] | _RELEASED | {"zero_stage": (1,), "data": (1,)},
)


def titan_settings(job: Job, newer: bool = False) -> Settings:
    """Assignments, parallelism first."""
    plan = job.plan
    settings: Settings = {
        P + "data_parallel_replicate_degree": plan.data // _shard(plan),
        P + "data_parallel_shard_degree": _shard(plan),
        P + "tensor_parallel_degree": plan.tensor,
        P + "enable_sequence_parallel": plan.sequence_parallel,
        P + "context_parallel_degree": plan.context,
        P + "expert_parallel_degree": plan.expert,
        P + "pipeline_parallel_degree": plan.pipeline,
    }
    if plan.zero_stage and plan.data * plan.context > 1:
        reshard, defer = RESHARD[plan.zero_stage]
        settings |= {P + "fsdp_reshard_after_forward": reshard}
        settings |= {P + "fsdp_defer_gradient_reduction": defer} if newer else {}
    if plan.pipeline > 1:
        settings |= _stages(job)
    settings |= (_batch if newer else _released_batch)(job) | {
        T + "mixed_precision_param": DTYPES.get(plan.precision, "bfloat16"),
        T + "mixed_precision_reduce": DTYPES.get(plan.gradient_dtype, "float32"),
    }
    full = "FullActivationRematConfig()" if newer else "FullAC.Config()"
    return settings | {"activation_checkpoint": _text.Name(full) if plan.recompute == "full" else None}


def _batch(job: Job) -> Settings:
    """Tokens of a microbatch and of a step."""
    pipelined = {P + "num_pp_microbatches": int(job.plan.microbatches(job.batch))} if job.plan.pipeline > 1 else {}
    return pipelined | {
        T + "num_tokens_per_microbatch_per_dp_rank": job.plan.microbatch * job.sequence,
        T + "num_tokens_per_train_step": job.batch * job.sequence,
        T + "max_context_length": job.sequence,
    }


def _released_batch(job: Job) -> Settings:
    """Sequences: the local batch is a microbatch, and under a pipeline all of them."""
    plan = job.plan
    names = {T + "global_batch_size": job.batch, T + "seq_len": job.sequence}
    if plan.pipeline == 1:
        return {T + "local_batch_size": plan.microbatch} | names
    own = {T + "local_batch_size": job.batch // plan.data, P + "pipeline_parallel_microbatch_size": plan.microbatch}
    return own | names


def _shard(plan: Plan) -> int:
    """Data ranks that share weights, beside all context ranks."""
    if plan.zero_stage == 0:
        return 1
    return plan.data if plan.data_shard is None else max(1, plan.data_shard // plan.context)


def _stages(job: Job) -> Settings:
    """Layers of one virtual stage, and how many fewer the first and the last one have."""
    plan, less = job.plan, (0, 0)
    own = plan.schedule in OWN_SCHEDULES
    settings: Settings = {ORDER: order_file(plan)} if own else {SCHEDULE: TITLES.get(plan.schedule, "1F1B")}
    if SCHEDULES[plan.schedule].folds:
        each, odd = divmod(job.layers, 2 * plan.pipeline)
        settings |= {} if odd else {P + "pipeline_parallel_layers_per_stage": each}
        return settings | _less((0, 0))
    each = job.layers // (plan.pipeline * plan.virtual_stages)
    if plan.stage_layers is not None:
        each = math.ceil(max(plan.stage_layers) / plan.virtual_stages)
        less = (each * plan.virtual_stages - plan.stage_layers[0], each * plan.virtual_stages - plan.stage_layers[-1])
        if any(_stage_rules(plan.stage_layers, plan.virtual_stages)):
            return settings
    return settings | {P + "pipeline_parallel_layers_per_stage": each} | _less(less)


def _less(layers: tuple[int, int]) -> Settings:
    ends = zip(("first", "last"), layers, strict=True)
    return {P + f"pipeline_parallel_{end}_stage_less_layers": fewer for end, fewer in ends}


def titan_fields(reader: Reader, known: Known) -> dict[str, Any]:
    """The same, backwards."""
    context, stages = reader.one(P + "context_parallel_degree"), reader.few(P + "pipeline_parallel_degree")
    fields: dict[str, Any] = {
        "tensor": (tensor := reader.one(P + "tensor_parallel_degree")),
        "context": context,
        "pipeline": stages,
        "expert": reader.one(P + "expert_parallel_degree"),
        "sequence_parallel": reader.flag(P + "enable_sequence_parallel", default=True) and tensor > 1,
        "overlap_context": context == 1,
        "precision": reader.word(T + "mixed_precision_param", _backwards(DTYPES), "bf16"),
        "gradient_dtype": reader.word(T + "mixed_precision_reduce", _backwards(DTYPES), "fp32"),
    }
    older = reader.word("activation_checkpoint.mode", {"full": "full", "none": "none", "selective": "none"}, "none")
    fields["recompute"] = reader.word("activation_checkpoint", REMATS, older)
    for name in ("activation_checkpoint.mode", "activation_checkpoint"):
        if "elective" in str(reader.settings.get(name)):
            reader.used.discard(name)  # by operators, which no plan has a word for: taken for none, and said
    return (
        fields
        | _groups_read(reader, context, stages)
        | _batch_read(reader, stages)
        | _stages_read(reader, stages, known)
    )


RELEASED_BATCH = 8
"""Sequences of a local batch where a file for 0.3.0, or before, says none."""


def model_read(settings: Mapping[str, Any]) -> Dimensions | str:
    """The model that a released version's file names."""
    named = MODELS.get((str(settings.get("model.name")), str(settings.get("model.flavor"))))
    return {"name": named} if named else "the file names no model that is known here"


def _backwards(names: dict[str, str]) -> dict[str, str]:
    return {value: name for name, value in names.items()}


def _groups_read(reader: Reader, context: int, stages: int) -> dict[str, Any]:
    """Data ranks and what they share; without a shard degree all that are left do (-1)."""
    replicas = reader.one(P + "data_parallel_replicate_degree")
    auto = reader.settings.get(P + "data_parallel_shard_degree", -1) == -1
    reader.used.add(P + "data_parallel_shard_degree")
    shard = None if auto else reader.count(P + "data_parallel_shard_degree")
    if shard == 1 and context == 1:
        return {"data": replicas, "zero_stage": 0 if replicas > 1 else 1}
    policies = {"always": "always", "never": "never", "default": "never" if stages > 1 else "always"}
    policy = reader.word(P + "fsdp_reshard_after_forward", policies, policies["default"])
    deferred = reader.flag(P + "fsdp_defer_gradient_reduction")
    fields: dict[str, Any] = {"zero_stage": 3 if policy == "always" else 1 if deferred else 2}
    if shard is not None:
        fields["data"] = replicas * shard
    return fields | ({"copies": replicas} if replicas > 1 else {})


def _batch_read(reader: Reader, stages: int) -> dict[str, Any]:
    sequence = reader.count(T + "max_context_length") or reader.count(T + "seq_len")
    local, batch = _older_batch(reader, stages)
    if tokens := reader.count(T + "num_tokens_per_microbatch_per_dp_rank"):
        local = divided(reader, T + "num_tokens_per_microbatch_per_dp_rank", tokens, sequence or tokens, "a microbatch")
    total = reader.settings.get(T + "num_tokens_per_train_step")
    reader.used.add(T + "num_tokens_per_train_step")
    if total not in (None, -1) and sequence:
        count = reader.count(T + "num_tokens_per_train_step", 1)
        batch = divided(reader, T + "num_tokens_per_train_step", count, sequence, "a step")
    return {"microbatch": local, "batch": batch, "sequence": sequence}


def _older_batch(reader: Reader, stages: int) -> tuple[int, int | None]:
    """Sequences of a microbatch and of a step under the names of August 2026 and before."""
    newer = reader.has(T + "num_tokens_per_microbatch_per_dp_rank") or reader.has(T + "num_tokens_per_train_step")
    local = reader.count(T + "local_batch_size", 1 if newer else RELEASED_BATCH)
    pipelined = reader.count(P + "pipeline_parallel_microbatch_size", 1 if stages > 1 and not newer else None)
    auto = reader.settings.get(T + "global_batch_size", -1) == -1
    reader.used.add(T + "global_batch_size")
    return pipelined or local, None if auto else reader.count(T + "global_batch_size")


def _stages_read(reader: Reader, stages: int, known: Known) -> dict[str, Any]:
    schedule = _schedule_read(reader)
    reader.count(P + "num_pp_microbatches")
    first, last = (reader.few(P + f"pipeline_parallel_{e}_stage_less_layers", least=0) for e in ("first", "last"))
    each = reader.count(P + "pipeline_parallel_layers_per_stage")
    if stages == 1:
        return {"schedule": "one_f_one_b"}
    if known.layers is None:
        raise SpecError(
            f"{reader.where}: `{P}pipeline_parallel_degree` is {stages}; expected the model's layers with it"
        )
    total = known.layers + first + last
    folded = SCHEDULES[schedule].folds
    several = folded or SCHEDULES[schedule].interleaves
    virtual = 1 if not several else 2 if each is None else math.ceil(total / each) / stages
    if virtual != int(virtual):
        raise reader.wrong(P + "pipeline_parallel_layers_per_stage", f"chunks in multiples of the {stages} stages")
    if folded and virtual != 2:
        raise reader.wrong(P + "pipeline_parallel_layers_per_stage", f"two chunks on each of the {stages} stages")
    chunks = _spread(total, stages * int(virtual), (first, last))
    held = [(chunks[i], chunks[-1 - i]) if folded else chunks[i::stages] for i in range(stages)]
    stage_layers = tuple(sum(layers) for layers in held)
    return {"schedule": schedule, "virtual_stages": 1 if folded else int(virtual), "stage_layers": stage_layers}


def _schedule_read(reader: Reader) -> str:
    """A schedule by its title, or one of one's own by the file of its order, which it must be known beside."""
    names = {name.lower(): schedule for schedule, name in TITLES.items()}
    written, order = reader.raw(SCHEDULE), reader.raw(ORDER)
    if order:
        own = PurePosixPath(str(order)).stem
        if own not in OWN_SCHEDULES:
            raise reader.wrong(ORDER, f"the name of a schedule that --with FILE.py registers, and {SUFFIX}")
        return own
    if written is not None and str(written).lower() not in names:
        raise reader.wrong(SCHEDULE, f"one of {', '.join(TITLES.values())}")
    return names.get(str(written).lower(), "one_f_one_b")


def _spread(total: int, count: int, less: tuple[int, int]) -> list[int]:
    """Layers of each chunk, as torchtitan spreads them: evenly, the first ones one more, the ends less."""
    each, odd = divmod(total, count)
    chunks = [each + (i < odd) for i in range(count)]
    chunks[0], chunks[-1] = chunks[0] - less[0], chunks[-1] - less[1]
    return chunks


def rules(plan: Plan, workload: Workload | None) -> Iterator[str]:
    """What goes together, beyond the table."""
    if plan.pipeline == 1 and plan.schedule != "one_f_one_b":
        yield f"`schedule` is {plan.schedule} with `pipeline` 1; torchtitan accumulates gradients then"
    yield from _shard_rules(plan)
    own = OWN_SCHEDULES.get(plan.schedule)
    if own is not None and (own.interleaves or own.folds or own.ways > 1):
        yield f"`schedule` is {plan.schedule}, which has several chunks on a stage; orders in a file have one here"
    if plan.stage_layers is not None and SCHEDULES[plan.schedule].folds:
        yield f"`stage_layers` is given with `schedule` {plan.schedule}; torchtitan's V has all chunks alike here"
    elif plan.stage_layers is not None:
        yield from _stage_rules(plan.stage_layers, plan.virtual_stages)
    if workload is not None and has_experts(workload) and plan.expert < plan.tensor:
        yield f"`expert` is {plan.expert} with `tensor` {plan.tensor}; torchtitan wants at least as many expert ranks"


def _shard_rules(plan: Plan) -> Iterator[str]:
    """Ranks that FSDP shares weights over."""
    if plan.zero_stage == 0 and plan.context > 1:
        yield f"`zero_stage` is 0 with `context` {plan.context}; FSDP shares weights over context ranks"
    if plan.zero_stage == 3 and plan.data * plan.context == 1:
        yield "`zero_stage` is 3 on one data rank; FSDP wants two"
    if plan.data_shard is not None and (plan.data_shard % plan.context or plan.data_shard == 1):
        yield f"`data_shard` is {plan.data_shard}; FSDP shares over two ranks or more, all context ranks among them"


def _stage_rules(held: tuple[int, ...], virtual_stages: int) -> Iterator[str]:
    """All stages alike but the first and the last, which may have fewer layers in one chunk of theirs."""
    each = math.ceil(max(held) / virtual_stages)
    whole = each * virtual_stages
    if set(held[1:-1]) - {whole} or min(held[0], held[-1]) <= whole - each or max(held[0], held[-1]) > whole:
        yield "`stage_layers` differ in the middle; torchtitan takes layers from the first and the last stage only"


def elsewhere(plan: Plan) -> Iterator[str]:
    """What a recipe chooses by an object, and the file of an order of one's own."""
    yield from order_elsewhere(plan)
    if plan.context > 1:
        yield "apply_transforms(config, [ContextParallelTransform(...)]) with an attention that gathers keys and values"


def order_elsewhere(plan: Plan) -> Iterator[str]:
    """The order of a schedule of one's own."""
    if plan.schedule in OWN_SCHEDULES:
        yield f"the order of operations, in {order_file(plan)} (`--out` writes it; its path is relative)"


def released_elsewhere(plan: Plan) -> Iterator[str]:
    """What 0.3.0 takes with the model, and the file of an order of one's own."""
    yield from order_elsewhere(plan)
    yield "the model, as --module and --config, whose sequence is `training.seq_len`"
    if plan.expert > 1:
        yield "config.training.disable_cuda_graphs = True where the dispatch of tokens synchronises"


FRAMEWORK = Framework(
    name="torchtitan",
    title="torchtitan",
    version="0.3.0",
    file="launch_torchtitan.py",
    alternatives=ALTERNATIVES,
    settings=titan_settings,
    fields=titan_fields,
    rules=rules,
    elsewhere=released_elsewhere,
    model=model_read,
    dump=_text.dump_python,
    parse=_text.parse_titan,
    signs=frozenset(
        {
            *(f"{P}{name}_parallel_degree" for name in ("tensor", "context", "expert", "pipeline")),
            *(f"{P}data_parallel_{name}_degree" for name in ("replicate", "shard")),
            *(f"{T}{name}_batch_size" for name in ("local", "global")),
            T + "num_tokens_per_microbatch_per_dp_rank",
            T + "num_tokens_per_train_step",
        }
    ),
    hint=r"\bparallelism\.\w*parallel|\b(?:tensor|pipeline|context)_parallel_degree\b|\bdata_parallel_(?:shard|replicate)_degree",
    about_model=frozenset(
        "training.steps training.max_norm training.dtype training.gc_freq training.dataset training.dataset_path "
        "job. profiling. metrics. optimizer. lr_scheduler. checkpoint. comm. validation. experimental. debug. "
        "model.name model.flavor model.hf_assets_path model.tokenizer_path hf_assets_path dump_folder fault_tolerance. "
        "activation_checkpoint.selective_ac_option".split()
    ),
)

MAIN = dataclasses.replace(
    FRAMEWORK,
    version="15e2431 (after 2026-08-21)",
    alternatives=NEWER,
    settings=functools.partial(titan_settings, newer=True),
    elsewhere=elsewhere,
)
"""The names that follow 0.3.0."""
