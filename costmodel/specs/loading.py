"""The only file input of the model: named and user-written models, clusters and plans, validated, in SI units.

Every error is a `SpecError` of one line that names the field, the value, what is allowed and where it was read.
The checks behind it are public here too, for what reads more input: flags, config files, other descriptions.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.formulas import CurveRange
from costmodel.inputs import Cluster, Plan, Workload
from costmodel.pytree import register_pytrees
from costmodel.specs.checks import COUNT, Check, convert, fail, nearest
from costmodel.specs.clusters import cluster_from, stack_fields
from costmodel.specs.curves import curves_from
from costmodel.specs.files import SpecError, plain, read_mapping, show
from costmodel.specs.huggingface import KEYS_OF_CONFIGS, from_config
from costmodel.specs.models import MODELS, registered, workload_from
from costmodel.specs.plans import plan_from

DATA = Path(__file__).parents[1] / "data"
CURVES = "market-2026"
_REGISTERED: dict[str, Any] = {}  # what stands for the table of a model that a function builds


@functools.cache
def read_tables(kind: str) -> dict[str, dict[str, Any]]:
    """A shipped file: `models`, `clusters`, `accelerators`, `prices` or `curves`, as it stands there. Read once."""
    return read_mapping(DATA / f"{kind}.toml")


def model_names() -> tuple[str, ...]:
    """Names that `load_workload` knows."""
    return (*read_tables("models"), *MODELS)


def cluster_names() -> tuple[str, ...]:
    """Names that `load_cluster` knows."""
    return tuple(read_tables("clusters"))


def load_workload(name_or_path: str | Path, sequence: int | None = None, batch: int | None = None) -> Workload:
    """A model by name, from a TOML or JSON file of its dimensions, or from a HuggingFace config.json.

    Names are the shipped ones and those of `costmodel.register_model`.

    With its default sequence and batch or yours; a config.json has none.
    """
    register_pytrees()
    name, table, where = _find("model", name_or_path)
    given = _arguments(where, {"sequence": sequence, "batch": batch}, {"sequence": COUNT, "batch": COUNT})
    if table is _REGISTERED:
        return registered(name, given, where)
    if any(key in table for key in KEYS_OF_CONFIGS):
        return from_config(table, where, given.get("sequence"), given.get("batch"))
    return workload_from({"name": name, **table}, given, where)


def load_cluster(name_or_path: str | Path, accelerators: int | None = None, software: str | None = None) -> Cluster:
    """A cluster by name, or from a TOML or JSON file, with its default number of accelerators or yours.

    `software` is the class of training software (`costmodel.inputs.SOFTWARE`, or a framework's name) whose habits and
    fitted constants its stack has; default: the one that the accelerator runs, as measured.
    """
    register_pytrees()
    name, table, where = _find("cluster", name_or_path)
    given = _arguments(where, {"accelerators": accelerators}, {"accelerators": COUNT})
    shipped = read_tables("accelerators"), read_tables("prices")
    own_first = table is not read_tables("clusters").get(name)
    return cluster_from(
        table,
        *shipped,
        name=name,
        where=where,
        software=software,
        fitted=read_tables("stacks"),
        own_first=own_first,
        **given,
    )


def load_curves(name_or_path: str | Path = CURVES) -> CurveRange:
    """Prices and powers of hardware that is still to be chosen, by name or from a TOML or JSON file."""
    name, table, where = _find("curve", name_or_path)
    return curves_from(table, where, str(name))


def load_plan(path: str | Path) -> Plan:
    """A plan from a TOML or JSON file: its fields, or a whole answer of `equipoise plan --json`."""
    if not isinstance(path, str | Path):
        fail("plan", "plan", path, "the path of a TOML or JSON file")
    return plan_from(read_mapping(path), f"plan ({plain(str(path))})")


def load_stack(path: str | Path) -> dict[str, Any]:
    """Fields of the Stack from a TOML or JSON file: its table `stack`, as `calibrate` writes it, or the whole file."""
    where, table = f"stack ({plain(str(path))})", read_mapping(path)
    if "cluster" in table or "stack" in table:
        table = table.get("stack", {})
    return stack_fields(table, where)


def _find(kind: str, name_or_path: str | Path) -> tuple[str, dict[str, Any], str]:
    """Name, table and place of a shipped or a user-written description."""
    if not isinstance(name_or_path, str | Path):
        fail(kind, kind, name_or_path, "a name or the path of a TOML or JSON file")
    known = read_tables(f"{kind}s") | (dict.fromkeys(MODELS, _REGISTERED) if kind == "model" else {})
    text = str(name_or_path)
    if text in known and not isinstance(name_or_path, Path):
        return text, known[text], f'{kind} "{text}"'
    if not is_path(name_or_path):
        raise SpecError(f"`{kind}` is {show(text)}, which is neither a known name nor a file; {nearest(text, known)}")
    table = read_mapping(text)
    name = table.get("name", Path(text).stem)
    label = plain(name if isinstance(name, str) else Path(text).stem)
    return name, table, f'{kind} "{label}" ({plain(text)})'


def is_path(name_or_path: str | Path) -> bool:
    """Whether it is meant as a file: a path, a name with its ending, or a file that is there."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or "\\" in text or text.endswith((".toml", ".json", ".py")):
        return True
    try:
        return text != "" and Path(text).exists()
    except (OSError, ValueError):
        return False


def _arguments(where: str, given: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    """Arguments that are not None, checked as the fields of the file are."""
    present = {name: value for name, value in given.items() if value is not None}
    return convert(present, {name: checks[name] for name in given}, f"{where}, argument")
