"""Workloads from a HuggingFace `config.json`, read as plain JSON. No transformers needed.

`READERS` (table.py) maps each `model_type` to the keys that it has and to a function that calls a
builder. A key that is neither read nor known to be irrelevant is an error: it may be structure that is not counted.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import Workload
from costmodel.specs import SpecError, fail, nearest, plain, show
from costmodel.specs.huggingface.keys import BASE, IGNORED, REQUIRED, Job, Reader, Values, missing
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
}
"""What the names of classes begin with, for files without a `model_type`."""


def from_config(mapping: Mapping[str, Any], where: str, sequence: int | None, batch: int | None) -> Workload:
    """The workload of a configuration, for sequences of so many tokens and a batch of so many sequences."""
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
    if kind is None and isinstance(named, list) and named and isinstance(named[0], str):
        kind = next((known for known, prefix in ARCHITECTURES.items() if named[0].startswith(prefix)), None)
        if kind is None:
            raise SpecError(f"{where}: `architectures` is {show(named)}, which is not read; {nearest('', READERS)}")
    if kind is None:
        raise SpecError(f"{where}: `model_type` is missing in this HuggingFace config.json; {nearest('', READERS)}")
    if not isinstance(kind, str) or kind not in READERS:
        said = nearest(kind if isinstance(kind, str) else "", READERS)
        raise SpecError(f"{where}: `model_type` is {show(kind)}, which is not read; {said}")
    return kind


def _read(mapping: Mapping[str, Any], reader: Reader, where: str) -> Values:
    """Values of all keys, checked; other names of keys resolved."""
    keys, values = {**BASE, **reader.keys}, {}
    for given, value in sorted(mapping.items(), key=lambda item: item[0] in reader.aliases):
        key = reader.aliases.get(given, given) if isinstance(given, str) else given
        if key not in keys:
            if key in IGNORED or key in reader.ignored:
                continue
            raise SpecError(f"{where}: `{plain(str(given))}` is {show(value)}, a key that is not understood here")
        check = keys[key].check
        if not check(value):
            fail(where, str(given), value, check.expected)
        kept = None if value is None else check.keep(value)
        if key in values and values[key] != kept:
            fail(where, str(given), value, f"{show(values[key])}, as `{key}` says under its other name")
        values[key] = kept
    for key, known in keys.items():
        if key not in values and known.default is REQUIRED:
            raise SpecError(f"{where}: `{key}` is missing; expected {known.check.expected}")
        values.setdefault(key, known.default)
    return values
