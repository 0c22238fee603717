"""Workloads from a HuggingFace `config.json`, read as plain JSON. No transformers needed.

`READERS` (table.py) maps each `model_type` to the keys that it has and to a function that calls a
builder. A key that is neither read nor known to be irrelevant is an error: it may be structure that is not counted.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import Workload
from costmodel.specs import REQUIRED, SpecError, fail, nearest, plain, show
from costmodel.specs.huggingface.keys import BASE, IGNORED, Job, Reader, Values, missing
from costmodel.specs.huggingface.names import LEFT_OUT, NESTED, OTHERS, STATE_SPACES
from costmodel.specs.huggingface.table import READERS

KEYS_OF_CONFIGS = ("model_type", "architectures", "hidden_size", "num_hidden_layers", "n_embd", "n_layer", "d_model")
"""Keys by which a file is taken for a HuggingFace one."""

ARCHITECTURES = {
    "llama": "Llama",
    "mistral": "Mistral",
    "qwen2": "Qwen2For",
    "qwen3": "Qwen3For",
    "gemma": "GemmaFor",
    "mixtral": "Mixtral",
    "qwen3_moe": "Qwen3MoeFor",
    "deepseek_v3": "DeepseekV3",
    "gpt2": "GPT2",
    "gpt_neox": "GPTNeoX",
    "bert": "Bert",
    "mbart": "MBart",
    "t5": "T5",
    "swin": "SwinFor",
    "phi3": "Phi3For",
    "gpt_oss": "GptOss",
    "olmo2": "Olmo2For",
    "olmo3": "Olmo3For",
    "nemotron": "NemotronFor",
    "glm4_moe": "Glm4MoeFor",
    "deepseek_v2": "DeepseekV2",
    "gemma3_text": "Gemma3ForCausal",
    "gemma2": "Gemma2For",
    "glm4": "Glm4For",
    "smollm3": "SmolLM3",
    "seed_oss": "SeedOss",
    "olmoe": "Olmoe",
    "minimax_m2": "MiniMaxM2",
}
"""What the names of classes begin with, for files without a `model_type`."""


def from_config(mapping: Mapping[str, Any], where: str, sequence: int | None, batch: int | None) -> Workload:
    """The workload of a configuration, for sequences of so many tokens and a batch of so many sequences."""
    kind = _model_type(mapping, where)
    if kind in NESTED:
        mapping = _text_part(mapping, kind, where)
        kind = _model_type(mapping, where)
    reader = READERS[kind]
    values = _read(mapping, reader, where)
    if batch is None:
        raise SpecError(missing(where, "batch"))
    built = reader.build(values, Job(where, sequence, batch))
    given = mapping.get("_name_or_path")
    return dataclasses.replace(built, name=plain(given) if isinstance(given, str) and given else kind)


def _model_type(mapping: Mapping[str, Any], where: str) -> str:
    kind, named = mapping.get("model_type"), mapping.get("architectures")
    if kind is None and "text_config" in mapping:
        raise SpecError(f"{where}: `model_type` is missing beside `text_config`; expected one of {', '.join(NESTED)}")
    if kind is None and isinstance(named, list) and named and isinstance(named[0], str):
        kind = next((known for known, prefix in ARCHITECTURES.items() if named[0].startswith(prefix)), None)
        if kind is None:
            raise SpecError(f"{where}: `architectures` is {show(named)}, which is not read; {nearest('', READERS)}")
    if kind is None:
        raise SpecError(f"{where}: `model_type` is missing in this HuggingFace config.json; {nearest('', READERS)}")
    if isinstance(kind, str) and kind in STATE_SPACES:
        layers = f"{show(kind)}, whose layers of state spaces or linear attention are not modelled here"
        raise SpecError(f"{where}: `model_type` is {layers}; expected a transformer")
    if not isinstance(kind, str) or kind not in (*READERS, *NESTED):
        raise SpecError(f"{where}: `model_type` is {show(kind)}, which is not read; {_meant(kind)}")
    return kind


def _meant(kind: Any) -> str:
    """The one name of which this is a misspelling, in a single letter; never another architecture."""
    known = sorted((*READERS, *NESTED))
    if isinstance(kind, str) and kind not in OTHERS:
        close = [name for name in known if _one_letter(kind, name)]
        if close:
            return f"did you mean {' or '.join(close)}?"
    return f"expected one of {', '.join(known)}"


def _one_letter(word: str, other: str) -> bool:
    """Whether two names differ by one letter more, less, or another one; digits tell architectures apart."""
    if re.sub(r"[^0-9]", "", word) != re.sub(r"[^0-9]", "", other) or abs(len(word) - len(other)) > 1:
        return False
    short, long = sorted((word, other), key=len)
    if len(short) == len(long):
        return sum(a != b for a, b in zip(short, long, strict=True)) == 1
    return any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def _text_part(mapping: Mapping[str, Any], kind: str, where: str) -> dict[str, Any]:
    """The configuration of the text of a model of text and images."""
    inner = mapping.get("text_config")
    if inner is None and not mapping.keys().isdisjoint(
        ("hidden_size", "num_hidden_layers")
    ):  # older files have it beside that of the images
        inner = {key: value for key, value in mapping.items() if key != "model_type" and not _is_vision(key)}
    if not isinstance(inner, Mapping):
        raise SpecError(f"{where}: `text_config` is missing; expected the part of {kind} that is a model of text")
    shared = {key: mapping[key] for key in ("tie_word_embeddings", "_name_or_path") if key in mapping}
    return {"model_type": NESTED[kind], **LEFT_OUT.get(kind, {}), **shared, **inner}


def _is_vision(key: str) -> bool:
    return key.startswith(("vision_", "image_", "video_"))


def _read(mapping: Mapping[str, Any], reader: Reader, where: str) -> Values:
    """Values of all keys, checked; other names of keys resolved."""
    keys, values = {**BASE, **reader.keys}, {}
    for given, value in sorted(mapping.items(), key=lambda item: item[0] in reader.aliases):
        key = reader.aliases.get(given, given) if isinstance(given, str) else given
        if key not in keys:
            if key in IGNORED or key in reader.ignored:
                continue
            raise SpecError(f"{where}: `{plain(str(given))}` is {show(value)}, a key that is not understood here")
        check = keys[key]
        if not check(value):
            fail(where, str(given), value, check.expected)
        kept = None if value is None else check.keep(value)
        if key in values and values[key] != kept:
            fail(where, str(given), value, f"{show(values[key])}, as `{key}` says under its other name")
        values[key] = kept
    for key, known in keys.items():
        if key not in values and known.default is REQUIRED:
            raise SpecError(f"{where}: `{key}` is missing; expected {known.expected}")
        values.setdefault(key, known.default)
    return values
