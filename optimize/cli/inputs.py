"""From words to what is evaluated: flags over a config file over a plan file, names to objects, `--fix` to fields,
the file of `--jobs` to jobs.

Each layer is checked under the name of the place where it was read, so a message says where to look.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import Cluster, Workload
from costmodel.specs import (
    COUNT,
    PLAN_CHECKS,
    Check,
    SpecError,
    convert,
    fail,
    load_cluster,
    load_workload,
    nearest,
    plain,
    read_mapping,
    require,
    show,
)
from optimize.cli.command import AMOUNT, COMMAND_LINE, placed
from optimize.launch import TABLE, model_in_file, read_plan_file
from optimize.question import SECONDS_A_DAY, Job

LARGEST_PIPELINE = 100_000  # stages, each of which is reported


@dataclasses.dataclass(frozen=True)
class Given:
    """All fields that were given, and where the one that counts was read."""

    values: Mapping[str, Any]
    places: Mapping[str, str]
    unread: tuple[str, ...] = ()  # options of a launch file

    def pick(self, *names: str) -> dict[str, Any]:
        """The fields of these names that were given."""
        return {name: self.values[name] for name in names if name in self.values}

    def place(self, *names: str) -> str:
        """The place of the first of the fields that was given."""
        return next((self.places[name] for name in names if name in self.places), COMMAND_LINE)


def job(given: Given, accelerators: int | None, framework: str | None = None) -> tuple[Workload, Cluster]:
    """The model and the cluster that were named, under the software that was, or that of the framework."""
    for field, example in (("model", "llama3-8b"), ("cluster", "h100")):
        if field not in given.values:
            raise SpecError(f"{COMMAND_LINE}: `{field}` is missing; expected a name such as {example}, or a file")
    if TABLE in given.values:
        workload = placed(given.place(TABLE), "model", model_in_file, given.values)
    else:
        sizes = given.pick("sequence", "batch")
        workload = placed(given.place("model"), "model", load_workload, given.values["model"], **sizes)
    return workload, named_cluster(given, given.values["cluster"], accelerators, framework)


def named_cluster(given: Given, name: str, accelerators: int | None = None, framework: str | None = None) -> Cluster:
    """The cluster under the software that was named, or that of a framework that its plans are for."""
    software = given.values.get("software", framework)
    return placed(given.place("cluster"), "cluster", load_cluster, name, accelerators, software)


def merge(flags: Mapping[str, Any], config: str | None, checks: Mapping[str, Check]) -> Given:
    """Flags over the config file over the plan file that one of them names, each checked under its own place."""
    layers = [(COMMAND_LINE, convert(flags, checks, COMMAND_LINE))]
    if config is not None:
        place = f"config ({plain(config)})"
        content = placed(COMMAND_LINE, "config", read_mapping, config)
        if name := next((name for name in content if name in PLAN_CHECKS and name not in checks), ""):
            raise SpecError(f'{place}: `{name}` is a field of a plan; expected it in `fix`, as in fix = "{name}=..."')
        layers.insert(0, (place, convert(content, checks, place)))
    source = next((source for source, layer in reversed(layers) if "plan" in layer), None)
    unread: tuple[str, ...] = ()
    if source is not None:
        path = dict(layers)[source]["plan"]
        beside = {name: value for _, layer in layers for name, value in layer.items()}
        fields, unread = placed(source, "plan", read_plan_file, path, beside)
        layers.insert(0, (f"plan ({plain(path)})", fields))
    values, places = {}, {}
    for place, layer in layers:
        values |= layer
        places |= dict.fromkeys(layer, place)
    if values.get("pipeline", 1) > LARGEST_PIPELINE:
        fail(places["pipeline"], "pipeline", values["pipeline"], f"an integer from 1 to {LARGEST_PIPELINE}")
    return Given(values, places, unread)


def fixed_fields(given: Given) -> dict[str, Any]:
    """The fields of `--fix tensor=8,schedule=one_f_one_b`."""
    if "fix" not in given.values:
        return {}
    place, fields = given.place("fix"), {}
    for part in str(given.values["fix"]).split(","):
        name, equals, text = (word.strip() for word in part.partition("="))
        name = name.replace("-", "_")
        if not equals or name not in PLAN_CHECKS:
            wrong = f"{place}: `fix` has {show(part.strip())}; expected field=value"
            raise SpecError(f"{wrong}; {nearest(name, PLAN_CHECKS)}" if equals else wrong)
        if name in fields:
            raise SpecError(f"{place}: `fix` gives `{name}` twice; expected one value")
        fields[name] = _typed(place, name, text)
    return fields


_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}


def _typed(place: str, name: str, text: str) -> Any:
    """The value that a field takes: of the readings of the text, the first that its check accepts."""
    check = PLAN_CHECKS[name]
    for read in (int, float, lambda word: _WORDS[word], str, lambda word: [int(part) for part in word.split(":")]):
        try:
            value = read(text)
        except (ValueError, KeyError):
            continue
        if check(value):
            return check.keep(value)
    raise SpecError(f"{place}: `fix` sets `{name}` to {show(text)}; expected {check.expected}")


_JOB_CHECKS: dict[str, Check] = {
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
    jobs = [_one_job(table, f"{where}, job {number}") for number, table in enumerate(tables, 1)]
    return tuple(name for name, _ in jobs), tuple(job for _, job in jobs)


def _one_job(table: Mapping[str, Any], where: str) -> tuple[str, Job]:
    values = convert(table, _JOB_CHECKS, where)
    require(values, ("model", "tokens"), _JOB_CHECKS, where)
    sizes = {name: values[name] for name in ("sequence", "batch") if name in values}
    workload = placed(where, "model", load_workload, values["model"], **sizes)
    days = values.get("deadline_days")
    deadline_s = None if days is None else SECONDS_A_DAY * days
    weight = values.get("weight", 1.0)
    return values["model"], Job(workload=workload, tokens=values["tokens"], weight=weight, deadline_s=deadline_s)
