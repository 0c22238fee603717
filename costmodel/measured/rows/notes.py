"""What only the words of a row say: kernels, asynchronous tensor parallelism, CUDA graphs, changed blocks and so on."""

import re
from collections.abc import Mapping

from costmodel.measured.rows.columns import software_words, words

# The first pattern that is found names the software class; beyond them `stack_of` goes by sharding and generation.
_CLASSES = (
    (r"nanotron", "nanotron"),
    (r"maxtext|\bpax|paxml|jax|levanter|\bxla\b|tpu|flax|t5x", "xla"),
    (r"megatron-deepspeed|megatron-llama", "megatron-2022"),
    (r"megatron[- ]bridge|megatron[- ]core|nemo(?!.*automodel)|dgxc|transformer engine|\(te\)|primus", "megatron-core"),
    (r"\bte \+|\bte,|transformer-engine", "megatron-core"),
    (r"fsdp|torchtitan|foundry|automodel|full_shard|shard_grad_op", "fsdp"),
    (r"deepspeed|zero-?3", "deepspeed"),
    (r"megatron|megascale|narayanan|korthikanti", "megatron-2022"),
)
_OLD_HARDWARE = ("v100", "a100")


def stack_of(row: Mapping[str, str], family: str, divided: bool, software: str | None = None) -> str:
    """The software class: by the words of the row, else the one that was named for rows that do not say theirs, else
    by the hardware and whether tensors or layers are divided."""
    if family == "tpu":
        return "xla"
    text = software_words(row)
    old = family in _OLD_HARDWARE
    named = next((name for pattern, name in _CLASSES if re.search(pattern, text)), software)
    if named is not None:
        return "megatron-core" if named == "megatron-2022" and not old else named
    if old:
        return "megatron-2022"
    return "megatron-core" if divided else "fsdp"


def facts_of(row: Mapping[str, str]) -> dict[str, float]:
    """Numbers that `notes` and names give; a fact that is not there is absent."""
    notes, model = words(row, "notes"), words(row, "model")
    facts = {name: 1.0 for name, pattern in _FLAGS.items() if re.search(pattern, notes)}
    if "vanilla tp" in notes:
        facts.pop("async_tp", None)
    if "tokendrop" in model or "token drop" in notes:
        facts["token_drop"] = 1.0
    for name, pattern in _NUMBERS.items():
        number = re.search(pattern, notes)
        if number:
            facts[name] = float(number[1])
    if re.search(r"foundry", words(row, "source", "notes")):
        facts["fused_loss"] = 1.0  # K: llm-foundry's default loss is flash-attention's fused cross entropy
    if re.search(r"nvidia-smi|bigscience", words(row, "source", "notes")):
        facts["device_memory"] = 1.0  # K: BigScience prints what nvidia-smi shows (measurements/README.md)
    return facts | _graphs(notes) | _megascale(notes) | _kernel(notes)


_FLAGS = {
    "async_tp": r"async tp",
    "first_flash": r"kernel=flash_attentionv1\b",
    "async_linear": r"async linear",
    "compiled": r"torch\.compile|float8",  # K: torchtitan and torchao cast to float8 in compiled kernels only
    "eager": r"\beager\b",
    "parallel_block": r"parallel (transformer block|attention)",
    "sliding_window": r"sliding[- ]window",
    "overlap_expert": r"ep all-to-all overlap",
    "no_overlap_data": r"(no|without) (gradient|grad|dp|data)[- ]?\w*[/ ]?overlap",
    "no_overlap": r"(no|without( any)?) (comm(unication)?s?[- ]?)?overlap|(comm(unication)?s?|tp|dp|pp)[- ]overlap"
    r"( is| are|:|=)? ?(off|disabled|false|none)",
    "force_balanced": r"force-balanced|balanced gate",
    "optimizer_sharded": r"megatron-deepspeed",  # K: ZeRO 1 in its examples; C: BigScience's rows fit in no other way
    "fast_dispatcher": r"deepep|hybridep",
    "vboost": r"vboost",
    "packed": r"packed|pack_sample_into_one=true",
    "recompute_modules": r"modules \[",
    "selective_layers": r"selective layer ac",
    "selective_ops": r"selective op ac",
    "offloaded_projections": r"qkv_proj_offloaded|remat policy printed as custom",
    "scan_off": r"scan off",
}
_NUMBERS = {
    "offload_layers": r"cpu activation offload of (\d+) layers",
    "recompute_layers": r"full recompute of (\d+) layers",
    "head_size": r"head[_ ]dim (\d+)",
}


def _graphs(notes: str) -> dict[str, float]:
    """CUDA graphs: of a whole iteration, which leaves the host nothing to do, or of parts of a layer."""
    if not re.search(r"cuda[- ]?graphs?\b", notes) or "cuda-graph settings per repo" in notes:
        return {}
    if re.search(r"full[-_ ]iteration|whole iteration", notes):
        return {"cuda_graphs": 1.0, "captured_iteration": 1.0}
    some = re.search(r"\[[^]]*'[^]]*\]", notes)  # a list of captured modules
    return {"cuda_graphs": 0.25 if some and "'attn'" not in some[0] else 0.75}


_ABLATION = (
    ("parallel transformer block", {"parallel_block": 1.0}),
    ("sliding window", {"sliding_window": 1.0}),
    ("tp overlap", {"async_tp": 1.0}),
    ("pp overlap", {"overlap_pipeline": 1.0}),
    ("dp overlap", {"overlap_data": 1.0}),
    ("efficient operators", {"fused_kernels": 1.0}),
    ("misc", {}),
    ("lamb", {}),
)


def _megascale(notes: str) -> dict[str, float]:
    """A table of additions, one on top of the other: a row has all up to its own."""
    if "ablation:" not in notes:
        changed = "parallel transformer block" in notes and "overlaps" in notes
        return {"async_tp": 1.0, "overlap_pipeline": 1.0, "overlap_data": 1.0} if changed else {}
    steps = [i for i, (name, _) in enumerate(_ABLATION) if name in notes.split("ablation:")[1]]
    facts: dict[str, float] = {"parallel_block": 0.0, "sliding_window": 0.0}
    for _, added in _ABLATION[: (steps[-1] + 1) if steps else 0]:
        facts |= added
    return facts


def _kernel(notes: str) -> dict[str, float]:
    """`kernel=flash_attention2 + RMS kernel`: the attention, and whether norms are fused; the rest is not."""
    kernel = re.search(r"kernel=([^;|]*)", notes)
    if not kernel:
        return {}
    return {
        "fused_kernels": 0.0,
        "fused_norms": float("rms" in kernel[1]),
        "unfused_attention": float("flash" not in kernel[1]),
    } | ({"framework_attention": 1.0} if "torch" in kernel[1] else {})
