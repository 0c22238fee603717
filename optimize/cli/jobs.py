"""The jobs of `--jobs`: a TOML or JSON file with a list of tables, one for each model that the cluster trains."""

from collections.abc import Mapping
from typing import Any

from costmodel.specs import (
    COUNT,
    Check,
    SpecError,
    convert,
    fail,
    load_workload,
    plain,
    read_mapping,
    require,
)
from optimize.cli.command import AMOUNT, placed
from optimize.question import SECONDS_A_DAY, Job

_CHECKS: dict[str, Check] = {
    "model": Check("a name or a file", lambda value: isinstance(value, str)),
    "sequence": COUNT,
    "batch": COUNT,
    "tokens": AMOUNT,
    "weight": AMOUNT,
    "deadline_days": AMOUNT,
}


def read_jobs(path: str, place: str) -> tuple[tuple[str, ...], tuple[Job, ...]]:
    """Names of the models as they were given, and the jobs. Raises `SpecError`."""
    content, where = placed(place, "jobs", read_mapping, path), f"jobs ({plain(path)})"
    tables = content.get("jobs")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, Mapping) for table in tables):
        fail(where, "jobs", tables, "a list of one table or more, `[[jobs]]` each")
    unknown = [key for key in content if key != "jobs"]
    if unknown:
        raise SpecError(f"{where}: `{plain(unknown[0])}` is not a field here; expected `[[jobs]]`")
    jobs = [_job(table, f"{where}, job {number}") for number, table in enumerate(tables, 1)]
    return tuple(name for name, _ in jobs), tuple(job for _, job in jobs)


def _job(table: Mapping[str, Any], where: str) -> tuple[str, Job]:
    values = convert(table, _CHECKS, where)
    require(values, ("model", "tokens"), _CHECKS, where)
    sizes = {name: values[name] for name in ("sequence", "batch") if name in values}
    workload = placed(where, "model", load_workload, values["model"], **sizes)
    days = values.get("deadline_days")
    deadline_s = None if days is None else SECONDS_A_DAY * days
    weight = values.get("weight", 1.0)
    return values["model"], Job(workload=workload, tokens=values["tokens"], weight=weight, deadline_s=deadline_s)
