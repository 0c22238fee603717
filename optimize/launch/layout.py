"""Megatron's text for layers that lie unevenly over pipeline stages: `Et*3|(t*4|)*2t*3L`, E embedding, t layer, L loss.

Stage after stage, and where each holds several chunks, all first chunks before all second ones. Source:
NVIDIA/Megatron-LM, megatron/core/transformer/pipeline_parallel_layer_layout.py at 00caa53 (`parse_str_to_list`).
"""

import itertools
import re

from costmodel.graph import layers_by_chunk
from costmodel.inputs import Plan

MOST_LETTERS = 100_000
"""Letters of a text that is written out."""


def layout(plan: Plan, layers: int) -> str:
    """One group of `t` for each chunk, groups that repeat as `(t*8|)*14`."""
    held = [int(count) for count in layers_by_chunk(plan, layers)]
    runs = [(count, len(list(same))) for count, same in itertools.groupby(held[:-1])]
    before = (f"(t*{count}|)*{times}" if times > 1 else f"t*{count}|" for count, times in runs)
    return f"E{''.join(before)}t*{held[-1]}L"


def chunk_layers(text: str) -> list[int] | None:
    """Layers of each chunk; None for a text that holds anything else (multi-token prediction, a wrong letter)."""
    text = text.replace(",", "").replace(" ", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        if sum(len(what) * int(times[:9]) for what, times in re.findall(pattern, text)) > MOST_LETTERS:
            return None
        text = re.sub(pattern, lambda match: match[1] * int(match[2]), text)
    if not re.fullmatch(r"E[t|]*L", text):
        return None
    return [stage.strip("EL").count("t") for stage in text.split("|")]


def stage_layers(chunks: list[int], stages: int) -> tuple[int, ...]:
    """Layers of each stage: the sum over its chunks."""
    return tuple(sum(chunks[stage::stages]) for stage in range(stages))
