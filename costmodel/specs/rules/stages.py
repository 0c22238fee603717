"""Rules of the pipeline: layers over stages, and what each schedule asks for."""

from collections.abc import Iterator
from typing import Any

from costmodel.inputs import SCHEDULES
from costmodel.specs.checks import either
from costmodel.specs.files import show
from costmodel.specs.rules.demands import Columns, Demands, Rule

_STAGES = ("schedule", "pipeline", "virtual_stages", "stage_layers")


def layers_over_stages(d: Demands) -> Iterator[Rule]:
    """Layers divide over stages and virtual stages, or the plan says how many each stage holds."""
    yield Rule(
        _STAGES, lambda p: (p.stage_layers[0] > 0) | (d.layers % _parts(p) == 0), lambda p: _undivided(p, d.layers)
    )
    yield Rule(
        ("pipeline", "stage_layers"),
        lambda p: (p.stage_layers[0] == 0) | (p.stage_layers[0] == p.pipeline) & (p.stage_layers[1] == d.layers),
        lambda p: (
            f"`stage_layers` is {p.stage_layers[0]} stages of {show(p.stage_layers[1])} layers together; expected "
            f"{show(p.pipeline)} stages of {d.layers}"
        ),
    )
    yield Rule(
        ("stage_layers",),
        lambda p: (p.stage_layers[0] == 0) | (d.workload.pieces == 1),
        lambda p: f"`stage_layers` is given with `pieces` {d.workload.pieces}; expected 1, or stages of equal layers",
    )
    yield Rule(
        ("schedule", "stage_layers"),
        lambda p: (p.stage_layers[0] == 0) | (not SCHEDULES[p.schedule].splits),
        lambda p: f"`stage_layers` is given with `schedule` {p.schedule}; expected {_names(splits=False)}",
    )
    yield Rule(
        ("schedule", "virtual_stages", "stage_layers"),
        lambda p: (p.stage_layers[0] == 0) | SCHEDULES[p.schedule].splits | (p.stage_layers[2] >= p.virtual_stages),
        lambda p: (
            f"`stage_layers` has a stage of {show(p.stage_layers[2])}; expected at least `virtual_stages` layers in "
            "each"
        ),
    )


def _parts(p: Columns) -> Any:
    """Parts of equal layers."""
    return p.pipeline * p.virtual_stages * (2 if SCHEDULES[p.schedule].folds else 1)


def _undivided(p: Columns, layers: int) -> str:
    if SCHEDULES[p.schedule].folds:
        return (
            f"`pipeline` is {show(p.pipeline)} with {p.schedule}; expected twice as many to divide the {layers} layers"
        )
    return (
        f"`pipeline` x `virtual_stages` is {show(_parts(p))}; expected a divisor of the {layers} layers, or "
        "`stage_layers`"
    )


def _names(**kind: bool) -> str:
    """Schedules of one kind, in words."""
    return either(n for n, s in SCHEDULES.items() if all(getattr(s, word) == is_so for word, is_so in kind.items()))


def schedule(d: Demands) -> Iterator[Rule]:
    """Virtual stages, stages and microbatches of each schedule."""
    whole = int(d.workload.batch)

    def microbatches(p: Columns) -> Any:
        return whole / (p.data * p.microbatch)

    yield Rule(
        ("schedule", "virtual_stages", "pipeline"),
        lambda p: (not SCHEDULES[p.schedule].interleaves) | (p.virtual_stages >= 2) & (p.pipeline >= 2),
        lambda p: f"`schedule` is {p.schedule}; expected `virtual_stages` >= 2 and `pipeline` >= 2",
    )
    yield Rule(
        ("schedule", "pipeline", "data", "microbatch"),
        lambda p: (not SCHEDULES[p.schedule].interleaves) | (microbatches(p) % p.pipeline == 0),
        lambda p: (
            f"`schedule` is {p.schedule} and there are {microbatches(p):g} microbatches; expected a multiple of "
            f"`pipeline` {show(p.pipeline)}"
        ),
    )
    yield Rule(
        ("schedule", "pipeline", "data", "microbatch"),
        lambda p: (SCHEDULES[p.schedule].ways == 1) | (p.pipeline % 2 == 0) & (microbatches(p) % 2 == 0),
        lambda p: (
            f"`schedule` is {p.schedule} with `pipeline` {show(p.pipeline)} and {microbatches(p):g} microbatches; "
            "expected even numbers: half of the microbatches go each way"
        ),
    )
    yield Rule(
        ("schedule", "virtual_stages"),
        lambda p: SCHEDULES[p.schedule].interleaves | (p.virtual_stages == 1),
        lambda p: (
            f"`virtual_stages` is {show(p.virtual_stages)} with {p.schedule}; expected 1, or {_names(interleaves=True)}"
        ),
    )
    yield Rule(
        ("schedule", "pipeline"),
        lambda p: (not SCHEDULES[p.schedule].folds) | (p.pipeline >= 2),
        lambda p: f"`schedule` is {p.schedule}; expected `pipeline` >= 2",
    )
    yield Rule(
        ("schedule", "pipeline", "data", "microbatch"),
        lambda p: microbatches(p) >= SCHEDULES[p.schedule].least_microbatches(p.pipeline),
        lambda p: (
            f"`schedule` is {p.schedule} and there are {microbatches(p):g} microbatches; expected at least "
            f"{show(SCHEDULES[p.schedule].least_microbatches(p.pipeline))}"
        ),
    )
