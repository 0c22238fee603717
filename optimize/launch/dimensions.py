"""The dimensions of a workload, as its builder's arguments: what a launch file says of the model.

They are read off the operators and built again: a model that comes out differently (other norms, windows, frozen
weights) has none, so that a launch file never describes another one.
"""

from collections.abc import Callable, Mapping
from typing import Any

from costmodel.inputs import LOGITS, Block, Op, Position, Workload
from costmodel.models import Latent, decoder, moe_decoder

Dimensions = dict[str, Any]


def dimensions_of(workload: Workload) -> Dimensions | None:
    """Arguments of `decoder` or `moe_decoder` (`experts` among them) that give the workload; None where none do."""
    held = [block for block in workload.blocks if block.position == Position.LAYER]
    try:
        found = {"layers": sum(int(block.repeats) for block in held)} | _edges(workload) | _layer(held)
        found |= _windows(workload)
    except (KeyError, StopIteration, IndexError, ValueError):
        return None
    if workload.windows:
        found.pop("causal_density", None)
    return found if _rebuilt(found, workload) == workload.blocks else None


def build(dimensions: Mapping[str, Any], sequence: int, batch: int) -> Workload:
    """The workload of dimensions."""
    builder: Callable[..., Workload] = moe_decoder if "experts" in dimensions else decoder
    return builder(**dimensions, sequence=sequence, batch=batch)


def _rebuilt(found: Dimensions, workload: Workload) -> tuple[Block, ...]:
    try:
        return build(found, int(workload.sequence), int(workload.batch)).blocks
    except (TypeError, ZeroDivisionError):
        return ()


def _edges(workload: Workload) -> Dimensions:
    """Width, vocabulary, and what the embedding and the head say."""
    ops = _by_name(workload.blocks[0])
    found: Dimensions = {"hidden": int(workload.hidden), "vocabulary": _size(ops["embedding"].inner)}
    if workload.tied:
        found["tied"] = True
    if positions := _size(ops["embedding"].parameters, 0):
        found |= {"learned_positions": True, "positions": positions // found["hidden"]}
    return found if LOGITS in _by_name(workload.blocks[-1]) else {}


def _layer(held: list[Block]) -> Dimensions:
    """Heads, feed-forward and experts of the layers."""
    last = _by_name(held[-1])
    attended = _latent(last) if "latent down" in last else _heads(last)
    dense = _by_name(held[0])
    if "router" not in last:
        return attended | _style(last) | _dense(last)
    experts = _experts(last) | _expert_style(last)
    if len(held) > 1:
        experts |= {"dense_layers": int(held[0].repeats), "ffn": _size(dense["ffn down"].inner)}
    return attended | experts


def _heads(ops: Mapping[str, Op]) -> Dimensions:
    scores = ops["attention"]
    size = _size(scores.inner)
    found = {"heads": _size(scores.groups), "head_size": size}
    found |= {"key_value_heads": _size(scores.key_values) // (2 * size)}
    return found | ({} if scores.density == 0.5 else {"causal_density": scores.density})


def _style(ops: Mapping[str, Op]) -> Dimensions:
    """Flags of a dense layer, those that are set."""
    ffn = "ffn down"
    flags = {
        "qkv_bias": bool(ops["qkv"].parameters),
        "out_bias": bool(ops["attention out"].parameters),
        "ffn_bias": bool(ops[ffn].parameters),
        "layer_norm": _size(ops["ffn norm"].parameters, 0) > _size(ops["ffn norm"].columns)
        if "ffn norm" in ops
        else _size(ops["attention norm"].parameters, 0) > _size(ops["attention norm"].columns),
        "qk_norm": "attention query key norm" in ops,
        "qk_norm_whole": any(size.split for op in _named(ops, "attention query key norm") for size in op.parameters),
        "norms_after": "ffn norm after" in ops,
        "parallel_block": "ffn norm" not in ops,
        "dropout": bool(ops["ffn residual"].saved),
    }
    return {name: True for name, is_set in flags.items() if is_set}


def _dense(ops: Mapping[str, Op]) -> Dimensions:
    return {"ffn": _size(ops["ffn down"].inner)} | ({"gated": True} if ops["ffn up"].matrices == 2 else {})


def _experts(ops: Mapping[str, Op]) -> Dimensions:
    dispatch, ffn = ops["dispatch"], _size(ops["expert down"].inner)
    found = {"experts": _size(ops["router"].columns), "top_k": int(dispatch.copies), "expert_ffn": ffn}
    if dispatch.spread < 1:
        found["expert_groups"] = round(dispatch.spread * dispatch.copies)
    if "ffn down" in ops:
        found["shared_experts"] = _size(ops["ffn down"].inner) // ffn
    return found


def _expert_style(ops: Mapping[str, Op]) -> Dimensions:
    """Flags of a layer with experts, those that are set."""
    norms = _named(ops, "query, key norm")
    flags = {
        "qkv_bias": any(op.parameters for op in _named(ops, "qkv")),
        "out_bias": bool(ops["attention out"].parameters),
        "expert_bias": bool(ops["router"].parameters),
        "attention_sinks": bool(ops["attention"].parameters),
        "query_key_norm": bool(norms),
        "query_key_norm_whole": any(size.split for op in norms for size in op.parameters),
    }
    return {name: True for name, is_set in flags.items() if is_set}


def _windows(workload: Workload) -> Dimensions:
    """The windows of attention, and the layers without."""
    if workload.windows is None:
        return {}
    window, full_every = workload.windows
    return {"window": window} | ({"full_every": full_every} if full_every else {})


def _named(ops: Mapping[str, Op], name: str) -> list[Op]:
    return [ops[name]] if name in ops else []


def _latent(ops: Mapping[str, Op]) -> Dimensions:
    heads, (*query, joint) = _size(ops["attention"].groups), (int(s.value) for s in ops["latent down"].columns)
    rank, opened = _size(ops["key value up"].inner), _size(ops["key value up"].columns) // heads
    rope, value = joint - rank, _size(ops["attention out"].inner) // heads
    query_rank = query[0] if query else None
    latent = Latent(
        query_rank=query_rank, key_value_rank=rank, nope_size=opened - value, rope_size=rope, value_size=value
    )
    return {"heads": heads, "latent": latent}


def _by_name(block: Block) -> dict[str, Op]:
    return {op.name: op for op in block.ops}


def _size(sizes: Any, default: int | None = None) -> int:
    """The product of sizes; `default` where there are none."""
    if not sizes and default is not None:
        return default
    product = 1
    for size in sizes:
        product *= int(size.value)
    return product
