"""The options of Megatron's core as fields of a plan: `megatron_write.py` backwards, and what people use beside.

Flags of forks and of versions before 2024 are read too. Those recompute all of a layer by `--checkpoint-activations`
and have fused attention only where they are told to. Megatron-DeepSpeed says the ZeRO stage by `--zero-stage`; its
optimizer for bf16 divides its states at stage 0 (bigscience, tr11-176B-ml.slurm: "it implements its own zero stage 1
equivalent").
"""

from typing import Any

from costmodel.specs import SpecError
from optimize.launch.framework import Known, Reader, divided
from optimize.launch.layout import chunk_layers, stage_layers
from optimize.launch.megatron_words import FSDP_GRADIENTS, LOSS, LOSS_KERNELS, MODULES, OPTIMIZERS, SHARDING, UNFUSED

RECIPES = {"delayed": "fp8_tensor", "tensorwise": "fp8_tensor", "blockwise": "fp8_block", "mxfp8": "mxfp8"}
OLD = ("checkpoint-activations", "data-impl", "zero-stage")
"""Flags of versions that have no fused attention of themselves."""
FLASH = ("use-flash-attn", "use-flash-attn-v1", "use-flash-attn-v2")
GENERATES = ("num-tokens-to-generate", "out-seq-length", "max-tokens-to-oom", "inference-max-requests", "prompt-path")
"""Flags of scripts that train nothing."""
BACKENDS = {"auto": "flash", "flash": "flash", "fused": "flash", "unfused": "unfused", "local": "unfused"}


def megatron_fields(reader: Reader, known: Known) -> dict[str, Any]:
    """Fields of the plan and facts that the flags say."""
    if generates := next((flag for flag in GENERATES if reader.has(flag)), ""):
        raise reader.wrong(generates, "a launch of training, where this generates text")
    tensor = reader.one("tensor-model-parallel-size")
    experts = known.has_experts or reader.has("expert-model-parallel-size") or reader.has("num-experts")
    layers_said = reader.count("num-layers")
    fields: dict[str, Any] = {
        "tensor": tensor,
        "context": reader.one("context-parallel-size"),
        "pipeline": reader.few("pipeline-model-parallel-size"),
        "expert": reader.one("expert-model-parallel-size"),
        "expert_tensor": reader.count("expert-tensor-parallel-size", tensor if experts else 1),
        "microbatch": reader.one("micro-batch-size"),
        "batch": reader.count("global-batch-size"),
        "sequence": (reader.count("decoder-seq-length") if reader.has("img-h") else None) or reader.count("seq-length"),
        "layers": layers_said,
        "context_kind": reader.word("cp-comm-type", {"p2p": "ring", "a2a": "all_to_all"}, "ring"),
        "sequence_parallel": reader.flag("sequence-parallel") and tensor > 1,
        "overlap_tensor": reader.flag("tp-comm-overlap"),
        "overlap_expert": reader.flag("overlap-moe-expert-parallel-comm"),
        "attention": _attention_read(reader),
        "fused_kernels": not all([reader.flag(name) for name in UNFUSED]),
        "loss": _loss_read(reader),
    }
    reader.word("moe-token-dispatcher-type", {"alltoall": 1, "flex": 1}, 1)
    if reader.has("model-recipe-name"):
        raise reader.wrong(
            "model-recipe-name", "flags of Megatron-LM: this names a recipe of Megatron-Bridge's own script"
        )
    if not (layers_said or known.layers):
        reader.more += [f"{flag} (not said)" for flag in ("num-layers", "micro-batch-size") if not reader.has(flag)]
    launched = [reader.raw(name) for name in ("nnodes", "nproc-per-node")]
    if all(type(count) is int and count > 0 for count in launched):
        whole = launched[0] * launched[1]
        fields |= {} if whole % (tensor * fields["context"] * fields["pipeline"]) else {"accelerators": whole}
    fields |= _stages_read(reader, fields["pipeline"], layers_said or known.layers)
    return (
        fields
        | _recompute_read(reader, fields, layers_said or known.layers)
        | _shards_read(reader)
        | _numbers_read(reader)
    )


def _attention_read(reader: Reader) -> str:
    asked, old = [reader.flag(name) for name in FLASH], any(reader.settings.get(name) is not None for name in OLD)
    return reader.word("attention-backend", BACKENDS, "unfused" if old and not any(asked) else "flash")


def _loss_read(reader: Reader) -> str:
    """Fused where Transformer Engine's kernels are asked for; other kernels than those and Megatron's are told."""
    kernels = reader.raw(LOSS_KERNELS)
    if kernels not in (None, "native", "te"):
        reader.used.discard(LOSS_KERNELS)
    return "fused" if reader.flag(LOSS) and kernels == "te" else "usual"


def _stages_read(reader: Reader, stages: int, total: int | None) -> dict[str, Any]:
    virtual, held = reader.one("num-virtual-stages-per-pipeline-rank"), None
    if each := reader.count("num-layers-per-virtual-pipeline-stage"):
        whole = _needed(reader, "num-layers-per-virtual-pipeline-stage", total)
        virtual = divided(reader, "num-layers-per-virtual-pipeline-stage", whole, stages * each, "all layers")
    if text := reader.raw("pipeline-model-parallel-layout"):
        chunks = chunk_layers(str(text))
        if chunks is None or len(chunks) % stages:
            raise reader.wrong("pipeline-model-parallel-layout", f"E, t and L alone, {stages} stages or a multiple")
        virtual, held = len(chunks) // stages, stage_layers(chunks, stages)
    ends = [reader.count(f"decoder-{end}-pipeline-num-layers") for end in ("first", "last")]
    if any(ends):
        held = _with_ends(reader, ends, stages, _needed(reader, "decoder-first-pipeline-num-layers", total))
    apart = reader.flag("no-overlap-p2p-communication")
    return {
        "virtual_stages": virtual,
        "schedule": "interleaved" if virtual > 1 else "one_f_one_b",
        "overlap_pipeline": virtual > 1 and not apart,
        "stage_layers": held,
    }


def _needed(reader: Reader, name: str, total: int | None) -> int:
    if total is None:
        told = f"`{reader.shown.get(name, name)}` needs the number of layers"
        raise SpecError(f"{reader.where}: {told}; expected `num-layers` with it")
    return total


def _with_ends(reader: Reader, ends: list[int | None], stages: int, total: int) -> tuple[int, ...]:
    """The first and the last stage as given, the others alike."""
    others = stages - sum(end is not None for end in ends)
    middle = divided(reader, "decoder-first-pipeline-num-layers", total - sum(filter(None, ends)), others, "others")
    return (ends[0] or middle, *[middle] * (stages - 2), ends[1] or middle)


def _recompute_read(reader: Reader, fields: dict[str, Any], total: int | None) -> dict[str, Any]:
    modes = {"full": "full", "selective": "selective"}
    methods = {"uniform": "uniform", "block": "block"}
    named = reader.word("activations-checkpoint-method", methods, "")
    older = "full" if any([reader.flag("checkpoint-activations"), named]) else "none"
    reader.used |= {"checkpoint-num-layers", "deepspeed-activation-checkpointing"}
    default = "selective" if reader.flag("recompute-activations") else older
    mode = reader.word("recompute-granularity", modes, default)
    method, share = reader.word("recompute-method", methods, named or "uniform"), 1.0
    modules = _modules_read(reader)
    count = reader.count("recompute-num-layers", reader.count("activations-checkpoint-num-layers", 1))
    if mode == "full" and method == "block":
        whole = _needed(reader, "recompute-num-layers", total)
        chunks = fields["pipeline"] * fields["virtual_stages"]
        each = divided(reader, "recompute-num-layers", whole, chunks, "all layers")
        share = min(1.0, count / each)
    if mode == "selective" and modules:
        mode = modules
    return {"recompute": mode, "recompute_share": share}


def _modules_read(reader: Reader) -> str:
    """The modules as a plan names them; none for the attention's core."""
    value = reader.raw("recompute-modules")
    words = [] if value is None else value if isinstance(value, list) else [value]
    known = {word: name for name, own in MODULES.items() for word in own}
    if words in ([], ["core_attn"]):
        return ""
    if not set(words) <= set(known):
        raise reader.wrong("recompute-modules", f"core_attn, or some of {', '.join(known)}")
    found = {known[word] for word in words}
    return "+".join(name for name in MODULES if name in found)


def _shards_read(reader: Reader) -> dict[str, Any]:
    strategies = {"no_shard": 0, "optim": 1} | {name: stage for stage, name in SHARDING.items()}
    stage, strategy = int(reader.flag("use-distributed-optimizer")), "data-parallel-sharding-strategy"
    if reader.flag("deepspeed"):
        stage = reader.word("zero-stage", {number: number for number in range(4)}, 0)
        stage = 1 if not stage and reader.flag("bf16") else stage
    if reader.flag("use-megatron-fsdp"):
        stage = max(stage, reader.word(strategy, strategies, 0))
    reduces, gathers = reader.flag("overlap-grad-reduce"), reader.flag("overlap-param-gather")
    if reduces and stage and not gathers:
        reader.used.discard("overlap-grad-reduce")  # half of the traffic overlaps: taken for none, and said
    return {
        "zero_stage": stage,
        "overlap_data": reduces and (gathers or not stage),
        "copies": reader.count("num-distributed-optimizer-instances"),
    }


def _gradients_read(reader: Reader, base: str) -> str:
    """The type in which gradients are summed and sent; Megatron-FSDP has flags of its own for it."""
    in_bf16, in_32_bits = reader.flag("grad-reduce-in-bf16"), reader.flag("accumulate-allreduce-grads-in-fp32")
    if reader.flag("use-megatron-fsdp") and reader.raw("data-parallel-sharding-strategy") in SHARDING.values():
        types = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "auto": base}
        held = reader.word(FSDP_GRADIENTS[0], types, base)
        if reader.word(FSDP_GRADIENTS[1], types | {"auto": held}, held) != held:
            raise reader.wrong(FSDP_GRADIENTS[1], f"{held}, as `{FSDP_GRADIENTS[0]}`")
        return held
    if base == "fp16":
        return "fp32" if in_32_bits else "fp16"
    return "bf16" if in_bf16 and not in_32_bits else "fp32"


def _numbers_read(reader: Reader) -> dict[str, Any]:
    base = "bf16" if reader.flag("bf16") else "fp16" if reader.flag("fp16") else "fp32"
    precision = base
    if reader.word("fp8-format", {"e4m3": True, "hybrid": True}, False):
        precision = reader.word("fp8-recipe", RECIPES, "fp8_tensor")
    if reader.word("fp4-format", {"e2m1": True}, False):
        precision = reader.word("fp4-recipe", {"nvfp4": "nvfp4"}, "nvfp4")
    types = {name: name for name in ("fp32", "bf16", "fp16", "fp8")}
    aware = reader.flag("use-precision-aware-optimizer")
    offloaded, fraction = reader.flag("optimizer-cpu-offload"), reader.number("optimizer-offload-fraction")
    first, second = (reader.word(f"exp-avg{end}-dtype", types, "fp32") for end in ("", "-sq"))
    if first != second:
        raise reader.wrong("exp-avg-sq-dtype", f"{first}, as `exp-avg-dtype`")
    return {
        "precision": precision,
        "gradient_dtype": _gradients_read(reader, base),
        "state_dtype": first if aware else "fp32",
        "offload_optimizer": (1.0 if fraction is None else fraction) if offloaded else 0.0,
        "optimizer": reader.word("optimizer", {name: name for name in OPTIMIZERS}, "adam"),
    }
