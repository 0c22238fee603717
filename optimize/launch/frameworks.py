"""Launch files: a plan as the flags or the file of a training framework, and back.

`launch("megatron", plan, workload, cluster)` gives the text, `read(text, where)` the fields of a plan that a text says.
Only this room knows names that belong to others; each framework's module says where they stand.
"""

import dataclasses
import itertools
import re
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import OWN_SCHEDULES, Cluster, Plan, Workload, layers
from costmodel.models import MULTI_TOKEN
from costmodel.specs import SpecError, family_of, nearest
from optimize.launch import deepspeed, maxtext, megatron, megatron_bridge, torchtitan
from optimize.launch.dimensions import Dimensions, dimensions_of
from optimize.launch.framework import (
    FACTS,
    Framework,
    Job,
    Known,
    Launch,
    Reader,
    Settings,
    canonical,
    has_experts,
    line_of,
    machine_of,
)
from optimize.launch.orders import order_file, order_rows
from optimize.launch.shell import UNDECIDED

FRAMEWORKS: dict[str, Framework] = {
    module.FRAMEWORK.name: module.FRAMEWORK for module in (megatron, megatron_bridge, torchtitan, maxtext, deepspeed)
}
VERSIONS = {("torchtitan", "main"): torchtitan.MAIN}
"""Other versions than those of `FRAMEWORKS`, by `--framework-version`."""
_OF_THE_MODEL = (
    "what of the model does not change its cost: its activation, positions and rotary base, where its norms stand and "
    "their epsilon, how its router scores, and which layers are dense where they are not the first"
)
_SIZE = re.compile(
    r"^\W*equipoise\W+.*?(?<!\d)(\d{1,12}) accelerators(?:, (\d{1,12}) of each innermost domain)?", re.MULTILINE
)


def framework_at(name: str, version: str | None = None) -> Framework:
    """The framework, in a version that it is known in. Raises `SpecError` for another one."""
    if name not in FRAMEWORKS:
        raise SpecError(f"`launch` is {name!r}; {nearest(name, FRAMEWORKS)}")
    if version is None or FRAMEWORKS[name].version.split()[0] == version:
        return FRAMEWORKS[name]
    if (name, version) not in VERSIONS:
        known = [FRAMEWORKS[name].version.split()[0], *(each for other, each in VERSIONS if other == name)]
        raise SpecError(f"`framework-version` is {version!r}; {name} is known at {' and '.join(known)}")
    return VERSIONS[name, version]


def names_on(cluster: Cluster) -> tuple[str, ...]:
    """Names of the frameworks that run on a cluster's accelerators, by their READMEs: MaxText on TPUs and GPUs, the
    others on GPUs (and Gaudi); none of them on Trainium."""
    family = family_of(cluster.accelerator.name)
    return ("maxtext",) if family == "tpu" else () if family == "trainium" else tuple(FRAMEWORKS)


def launch(
    name: str, plan: Plan, workload: Workload, cluster: Cluster, version: str | None = None, said: tuple[str, ...] = ()
) -> str:
    """The plan as text, in the framework's version. What it cannot be told stands in comments at the head, after what
    else is `said` there."""
    framework, plan = framework_at(name, version), canonical(plan)
    where = f", {plan.domain} of each innermost domain" if plan.domain is not None else ""
    notes = (
        f"equipoise: {workload.name} on {cluster.name}, {plan.accelerators} accelerators{where}, for {framework.title}",
        f"written for {framework.title} {framework.version}",
        *([] if name in names_on(cluster) else [f"{framework.title} is not made for {cluster.accelerator.name}"]),
        *(f"not said below: {told}" for told in framework.cannot(plan, workload, cluster)),
        *(f"set outside this file: {told}" for told in outside(framework, plan, workload, cluster)),
        *said,
    )
    return framework.dump(framework.settings(_job(plan, workload, cluster)), notes)


def outside(framework: Framework, plan: Plan, workload: Workload, cluster: Cluster) -> tuple[str, ...]:
    """What a launch file leaves to others, in words: the model too, or what of it makes no difference to the cost."""
    job, told = _job(canonical(plan), workload, cluster), tuple(framework.elsewhere(plan))
    if framework.settings(job) != framework.settings(dataclasses.replace(job, model=None)):
        return (*told, _OF_THE_MODEL)
    if job.model is None:
        return (*told, _none_of_theirs(workload))
    return told if any("model" in words for words in told) else (*told, "the model, which these options do not say")


def of_the_model(workload: Workload) -> tuple[str, ...]:
    """What no launch file can say of a model that is none of those which frameworks' options describe."""
    return () if dimensions_of(workload) is not None else (_none_of_theirs(workload),)


def _none_of_theirs(workload: Workload) -> str:
    told = f"the model: of {workload.name} it says only how it is divided; its code must be there, and allow that"
    modules = sum(int(block.repeats) for block in workload.blocks if block.name == MULTI_TOKEN)
    counted = "the last layer is a module" if modules == 1 else f"the last {modules} layers are modules"
    own = "which frameworks count apart (Megatron: `mtp_num_layers`, and m in a layout)"
    return f"{told}; {counted} of multi-token prediction, {own}" if modules else told


def _job(plan: Plan, workload: Workload, cluster: Cluster) -> Job:
    return Job(
        plan=plan,
        batch=int(workload.batch),
        sequence=int(workload.sequence),
        layers=layers(workload),
        has_experts=has_experts(workload),
        accelerators=plan.accelerators,
        slice_size=_slice_size(plan, cluster),
        machine=machine_of(cluster),
        model=dimensions_of(workload),
    )


def beside_launch(name: str, plan: Plan, workload: Workload) -> dict[str, str]:
    """Files that a launch file names, by their names: the order of a schedule of one's own."""
    if name != torchtitan.FRAMEWORK.name or plan.schedule not in OWN_SCHEDULES or plan.pipeline == 1:
        return {}
    return {order_file(plan): order_rows(plan, int(workload.batch))}


def _slice_size(plan: Plan, cluster: Cluster) -> int:
    """Accelerators that share the inner network: a torus of several axes (`ici-x`, ...), or one innermost domain."""
    axes = [tier for tier in cluster.tiers if tier.name.startswith("ici")]
    inner = int(axes[-1].size) if axes else int(plan.domain or cluster.tiers[0].usable_size)
    return min(plan.accelerators, inner)


def framework_of(text: str) -> Framework | None:
    """The framework of whose options a text has most, or that it seems to be for, if it is a launch file at all."""
    found = _recognised(text)
    return None if found is None else found[0]


def _recognised(text: str) -> tuple[Framework, str, Settings | None] | None:
    """The framework of a text; what is wrong, or its options."""
    json = text.lstrip().startswith("{")  # which may hold the text of another launch file
    asked = [FRAMEWORKS["deepspeed"]] if json else list(FRAMEWORKS.values())
    tried = [(framework, *_parsed(framework, text)) for framework in asked]
    best = max(tried, key=lambda each: len(each[0].signs & (each[2] or {}).keys()))
    if best[2] is not None:
        return best
    hinted = [each for each in tried if (each[1] or not json) and _hint(each[0], text)]
    return next(iter(hinted), None)


def _hint(framework: Framework, text: str) -> re.Match[str] | None:
    """A line that is no comment, with an option of the framework's."""
    return re.search(rf"^(?!\s*(?:#|//)).*(?:{framework.hint})", text, re.MULTILINE)


def _parsed(framework: Framework, text: str) -> tuple[str, Settings | None]:
    """What is wrong with a text, or the options of the one launch in it."""
    try:
        found = framework.parse(text)
    except SpecError as error:
        return str(error), None
    launches = [(line, settings) for line, settings in found if framework.signs & settings.keys()]
    for line, settings in [] if launches else found:
        if name := next(iter(_undecided(settings)), ""):
            return f"line {line}: `{name}` depends on branches that the file does not decide", None
    if not launches:
        hint = _hint(framework, text)
        line = "" if hint is None else f"line {text.count(chr(10), 0, hint.start()) + 1}: "
        return f"{line}no degree of {framework.title} and no batch can be read from it", None
    for (first, one), (second, other) in itertools.pairwise(launches):
        names = sorted(framework.signs) + sorted(_read_from(framework, one) & one.keys() & other.keys())
        if name := next((n for n in names if one.get(n) != other.get(n)), ""):
            return f"lines {first} and {second} launch with different `{name}`; expected one launch", None
    return "", max((settings for _, settings in launches), key=len)


def _read_from(framework: Framework, settings: Settings) -> set[str]:
    """Options that a plan is read from; as far as they can be."""
    reader = Reader(settings, "")
    try:
        framework.fields(reader, Known())
    except SpecError:
        pass
    return reader.used


def model_of(text: str) -> Dimensions | str:
    """The dimensions of the model that a launch file describes, or its known name; or what keeps it from being read."""
    found = _recognised(text)
    if found is None or found[2] is None:
        return "the file does not say the model"
    return found[0].model({name: value for name, value in found[2].items() if not name.startswith(UNDECIDED)})


def _undecided(settings: Settings) -> list[str]:
    """Options that depend on a branch which nobody can decide."""
    return [name.removeprefix(UNDECIDED) for name in settings if name.startswith(UNDECIDED)]


def read(text: str, where: str = "launch file", known: Known | None = None) -> Launch:
    """The fields of a plan that a launch file says. Raises `SpecError` for what cannot be read."""
    found, known = _recognised(text), known or Known()
    if found is None:
        raise SpecError(f"{where}: not a launch file; expected one of {', '.join(FRAMEWORKS)}")
    framework, wrong, settings = found
    if settings is None:
        raise SpecError(f"{where}: {wrong}")
    undecided = _undecided(settings)
    settings = {name: value for name, value in settings.items() if not name.startswith(UNDECIDED)}
    reader = Reader(settings, where, text=text)
    size = _SIZE.search(text)
    said = dataclasses.replace(known, accelerators=known.accelerators or (int(size[1]) if size else None))
    fields = framework.fields(reader, said)
    if name := next((name for name in undecided if name in reader.used), ""):
        line = line_of(text, name)
        raise SpecError(
            f"{where}: `{name}` depends on branches that the file does not decide{line}; expected one value"
        )
    facts = {name: value for name in FACTS if (value := fields.pop(name, None)) is not None}
    count = said.accelerators or facts.get("accelerators")
    if size and size[2]:
        fields["domain"] = int(size[2])
    if fields.get("stage_layers") is not None and len(set(fields["stage_layers"])) == 1:
        even = fields["stage_layers"][0] % fields.get("virtual_stages", 1) == 0
        fields["stage_layers"] = None if even else fields["stage_layers"]
    return Launch(
        framework=framework.name,
        fields=_completed(fields, count, where),
        facts=facts | ({} if count is None else {"accelerators": count}),
        unread=(*reader.left(framework.about_model), *(n for n in undecided if n not in framework.about_model)),
        model=framework.model(reader.settings),
    )


def _completed(fields: dict[str, Any], accelerators: int | None, where: str) -> Mapping[str, Any]:
    """The fields with `data` from the number of accelerators, and `data_shard` from the number of groups."""
    copies = fields.pop("copies", None)
    inside = fields["tensor"] * fields["context"] * fields["pipeline"]
    if "data" not in fields and accelerators is not None:
        data, rest = divmod(accelerators, inside)
        if rest or not data:
            told = f"`accelerators` is {accelerators}; expected a multiple of tensor x context x pipeline, {inside}"
            raise SpecError(f"{where}: {told}")
        fields["data"] = data
    if copies is not None and copies > 1:
        if "data" not in fields:
            raise SpecError(f"{where}: groups of data ranks need the number of accelerators; expected --accelerators")
        fields["data_shard"] = fields["data"] * fields["context"] // copies
    return fields
