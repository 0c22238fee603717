"""Clusters, curves, plans and stacks by name or from files, validated, in SI units.

Every error is a `SpecError` of one line that names the field, the value, what is allowed and
where it was read. The checks behind it are public in the door, for what reads more input: flags, config files.
"""

from pathlib import Path
from typing import Any

from costmodel.formulas import CurveRange
from costmodel.inputs import Cluster, Plan
from costmodel.pytree import register_pytrees
from costmodel.specs.checks import COUNT, TEXT, fail
from costmodel.specs.clusters import cluster_from, stack_fields
from costmodel.specs.curves import curves_from
from costmodel.specs.files import SpecError, plain, read_mapping
from costmodel.specs.given import expecting
from costmodel.specs.plans import plan_from
from costmodel.specs.tables import arguments, described, read_tables

CURVES = "market-2026"


def cluster_names() -> tuple[str, ...]:
    """Names that `load_cluster` knows."""
    return tuple(read_tables("clusters"))


@expecting(software=TEXT)
def load_cluster(name_or_path: str | Path, accelerators: int | None = None, software: str | None = None) -> Cluster:
    """A cluster by name, or from a TOML or JSON file, with its default number of accelerators or yours.

    `software` is the class of training software (`costmodel.inputs.SOFTWARE`, or a framework's name) whose habits and
    fitted constants its stack has; default: the one that the accelerator runs, as measured.
    """
    register_pytrees()
    name, table, where = described("cluster", name_or_path)
    given = arguments(where, {"accelerators": accelerators}, {"accelerators": COUNT})
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


@expecting()
def load_curves(name_or_path: str | Path = CURVES) -> CurveRange:
    """Prices and powers of hardware that is still to be chosen, by name or from a TOML or JSON file."""
    name, table, where = described("curve", name_or_path)
    return curves_from(table, where, str(name))


@expecting()
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
    if not table:
        raise SpecError(f"{where}: the file has no field of a stack; expected some, such as matmul_ceiling = 0.8")
    other = next((name for name, value in table.items() if isinstance(value, dict)), None)
    if other is not None:
        raise SpecError(f"{where}: `{plain(other)}` is a table that is not known here; expected the table `stack`")
    return stack_fields(table, where)
