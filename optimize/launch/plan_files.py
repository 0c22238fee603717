"""Plan files: the fields of `Plan`, an answer that holds them, or a launch file of a training framework."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import Workload, layers
from costmodel.models import Latent
from costmodel.specs import (
    PLAN_CHECKS,
    SpecError,
    convert,
    load_workload,
    plain,
    plan_from,
    read_mapping,
    read_text,
    workload_from,
)
from optimize.launch.framework import Known, has_experts

TABLE = "model_table"
"""Beside `model`: the dimensions of a model that a launch file describes."""


def read_plan_file(path: str, beside: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Fields of the plan, and with a launch file batch, sequence, accelerators and software; and options of a launch
    file that may change the cost and that nothing here stands for.

    Where no model is named `beside` it, the one that a launch file describes: its name, or under `model_table` its
    dimensions.

    A launch file may leave open how many layers or accelerators there are: taken from what was given `beside` it.
    """
    from optimize.launch.frameworks import framework_of, read

    text, where = read_text(path), f"plan ({plain(path)})"
    framework = framework_of(text)
    if framework is None or framework.name == "deepspeed":
        _refuse_others(text, where, path)
    if framework is None:
        return _plan_fields(path, where), ()
    known = _known(beside)
    model = {} if "model" in beside else _model(text, where)
    if "model" in model:
        known = _known({**beside, **model, "sequence": beside.get("sequence", 1), "batch": beside.get("batch", 1)})
    launch = read(text, where, known)
    count = launch.facts.get("layers", known.layers)
    if known.layers is not None and count != known.layers:
        raise SpecError(f"{where}: `num-layers` is {count}; expected the {known.layers} layers of the model")
    facts = {name: launch.facts[name] for name in ("batch", "sequence", "accelerators") if name in launch.facts}
    software = {"software": launch.framework}
    return software | facts | model | convert(launch.fields, PLAN_CHECKS, where), launch.unread


_OTHERS = (
    ("Hugging Face's Trainer", r"per_device_train_batch_size"),
    ("Accelerate", r"distributed_type|fsdp_sharding_strategy"),
    ("nanotron", r"batch_accumulation_per_replica"),
    ("LLM Foundry", r"global_train_batch_size|device_train_microbatch_size"),
    ("torchtune", r"_component_"),
    ("LLaMA-Factory", r"finetuning_type|cutoff_len"),
    ("Axolotl", r"base_model"),
)
"""Software whose configurations are told from those that are read, by a key."""


def _refuse_others(text: str, where: str, path: str) -> None:
    """Raise for configurations of other software, and for YAML of none that is known: no plan is YAML."""
    keys = ((name, rf"^[\s{{,\-]*[\"']?(?:{found})[\"']?\s*[:=]|--(?:{found})\b") for name, found in _OTHERS)
    other = next((name for name, key in keys if re.search(key, text, re.MULTILINE)), None)
    if other is None and not path.lower().endswith((".yaml", ".yml")):
        return
    expected = "a plan, or a launch file of Megatron-LM, Megatron-Bridge, torchtitan, MaxText or DeepSpeed"
    said = f"a configuration of {other}, which is not read" if other else "YAML in which no degree and no batch is read"
    raise SpecError(f"{where}: `plan` is {said}; expected {expected}")


def _model(text: str, where: str) -> dict[str, Any]:
    """The model that the file describes. Raises `SpecError` with what keeps it from being read."""
    from optimize.launch.frameworks import model_of

    model = model_of(text)
    if isinstance(model, str):
        raise SpecError(f"{where}: `model` is missing, and {model}; expected --model with a name such as llama3-8b")
    return (
        {"model": model["name"]}
        if "name" in model
        else {"model": f"model of {where.removeprefix('plan ').strip('()')}", TABLE: model}
    )


def model_in_file(given: Mapping[str, Any]) -> Workload:
    """The model of a launch file, for the sequence and the batch that were given."""
    sizes = {name: given[name] for name in ("sequence", "batch") if name in given}
    table = {"family": "moe" if "experts" in given[TABLE] else "decoder", **given[TABLE]}
    if isinstance(latent := table.get("latent"), Latent):
        table["latent"] = {name: rank for name, rank in dataclasses.asdict(latent).items() if rank is not None}
    return workload_from({"name": given["model"], **table}, sizes, str(given["model"]))


def is_launch_file(path: str) -> bool:
    """Whether a file holds the options of a training framework."""
    from optimize.launch.frameworks import framework_of

    return framework_of(read_text(path)) is not None


def _plan_fields(path: str, where: str) -> dict[str, Any]:
    """The fields that a plan file gives. It is a whole plan: degrees that it leaves out are 1, but `data` follows."""
    content = read_mapping(path)
    plan = plan_from(content, where)
    inside = content.get("plan", content)
    ones = {name: 1 for name in ("tensor", "context", "pipeline") if name not in inside}
    return {name: getattr(plan, name) for name in PLAN_CHECKS if name in inside} | ones


def _known(beside: Mapping[str, Any]) -> Known:
    """What the model and the command line say. A wrong model is told where it is read for good."""
    count = beside.get("accelerators")
    try:
        workload = _model_beside(beside) if TABLE not in beside else model_in_file(beside)
    except (KeyError, SpecError):
        return Known(accelerators=count)
    return Known(layers=layers(workload), accelerators=count, has_experts=has_experts(workload))


def _model_beside(beside: Mapping[str, Any]) -> Workload:
    """The model that was named, of which layers and experts are asked; a config.json needs sizes that the file has."""
    try:
        return load_workload(beside["model"])
    except SpecError:
        return load_workload(beside["model"], sequence=beside.get("sequence", 1), batch=beside.get("batch", 1))
