"""Workloads by name or from files: of their dimensions, or HuggingFace's `config.json`."""

from pathlib import Path
from typing import Any

from costmodel.inputs import Workload
from costmodel.pytree import register_pytrees
from costmodel.specs.checks import COUNT
from costmodel.specs.given import expecting
from costmodel.specs.huggingface import KEYS_OF_CONFIGS, from_config
from costmodel.specs.models import MODELS, registered, workload_from
from costmodel.specs.tables import arguments, described, read_tables

_REGISTERED: dict[str, Any] = {}  # what stands for the table of a model that a function builds


def model_names() -> tuple[str, ...]:
    """Names that `load_workload` knows."""
    return (*read_tables("models"), *MODELS)


@expecting()
def load_workload(name_or_path: str | Path, sequence: int | None = None, batch: int | None = None) -> Workload:
    """A model by name, from a TOML or JSON file of its dimensions, or from a HuggingFace config.json.

    Names are the shipped ones and those of `costmodel.register_model`.

    With its default sequence and batch or yours; a config.json has none.
    """
    register_pytrees()
    name, table, where = described("model", name_or_path, dict.fromkeys(MODELS, _REGISTERED))
    given = arguments(where, {"sequence": sequence, "batch": batch}, {"sequence": COUNT, "batch": COUNT})
    if table is _REGISTERED:
        return registered(name, given, where)
    if any(key in table for key in KEYS_OF_CONFIGS):
        return from_config(table, where, given.get("sequence"), given.get("batch"))
    return workload_from({"name": name, **table}, given, where)
