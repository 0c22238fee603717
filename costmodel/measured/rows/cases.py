"""Measured rows, mapped to what the model takes."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

from costmodel.inputs import (
    COMPILED,
    GATHERED_LOSS_BYTES,
    NEVER_MEASURED,
    Cluster,
    Habits,
    Workload,
    layers,
    model_flop,
)
from costmodel.measured.rows.columns import Columns, RowError, lenient, measured_step_s
from costmodel.measured.rows.dimensions import filled
from costmodel.measured.rows.flop_rates import with_density
from costmodel.measured.rows.habits import habits_of
from costmodel.measured.rows.hardware import machine
from costmodel.measured.rows.headers import column_readings, translated, unread
from costmodel.measured.rows.job_sizes import OPEN_BATCH, completed, told_batch
from costmodel.measured.rows.layouts import layout
from costmodel.measured.rows.models import check_sizes, workload
from costmodel.measured.rows.notes import OPEN_SOFTWARE, facts_of, settings, stack_of
from costmodel.measured.rows.printed import of_own_size, plain
from costmodel.measured.rows.records import Case, Machine, Unreadable
from costmodel.measured.rows.words import other_than_pretraining
from costmodel.specs import plain as plain_name
from costmodel.specs import read_rows


def read_cases(path: str | Path, software: str | None = None) -> list[Case | Unreadable]:
    """One entry for each row of a file, in order. A malformed row costs that row alone."""
    read_as: dict[str, str] = {}

    def translate(row: Mapping[str, str]) -> Mapping[str, str]:
        read_as.update(column_readings(tuple(row)))
        return translated(row)

    def told(row: Mapping[str, str]) -> Mapping[str, str]:
        others = settings(row, unread(tuple(row)))
        read_as.update(dict.fromkeys((each.partition("=")[0] for each in others), "as notes"))
        return {**row, "notes": "; ".join(filter(None, (row.get("notes") or "", *others)))} if others else row

    rows = [
        Unreadable(row={}, reason=row) if isinstance(row, str) else case(told(row), software)
        for row in read_rows(path, translate=translate)
    ]
    if not read_as:
        return rows
    words = f"columns {', '.join(f'{plain_name(name)} {reading}' for name, reading in read_as.items())}"
    return [dataclasses.replace(row, assumed=(*row.assumed, words)) if isinstance(row, Case) else row for row in rows]


def case(row: Mapping[str, str], software: str | None = None) -> Case | Unreadable:
    """What the model takes of one row, or why it takes nothing. `software` is that of rows that do not say theirs."""
    try:
        return _case(row, software)
    except RowError as error:
        return Unreadable(row=row, reason=str(error))
    except (ArithmeticError, ValueError) as error:  # sizes that no model has
        return Unreadable(row=row, reason=f"not a training step: {' '.join(str(error).split())}")


def _case(printed: Mapping[str, str], software: str | None) -> Case:
    row = of_own_size(plain(printed))
    facts = facts_of(row)
    reason = other_than_pretraining(row.get("source") or "", row.get("model") or "", row.get("notes") or "")
    if reason:
        raise RowError(reason)
    check_sizes(Columns(row))
    facts = told_batch(Columns(row), facts)
    columns, of_dimensions = filled(Columns(row), facts)
    columns, of_sizes = completed(columns, facts)
    hardware = machine(columns, facts.get("power_w"))
    degrees = (("tp", "tensor"), ("pp", "pipeline"))
    divided = any((columns.count(name) or facts.get(word) or 1) > 1 for name, word in degrees)
    stack, is_named = stack_of(row, hardware.family, divided, software)
    habits = habits_of(columns, facts, stack)
    work, of_model = workload(columns, facts, habits)
    told = () if is_named else (f"{stack}: its software is not named",)
    told += (f"{stack}: no run of its software was measured",) if stack in NEVER_MEASURED else ()
    plan, of_plan, open_marks = layout(columns, facts, hardware, stack, habits, layers(work), int(work.batch))
    if plan.precision == "nvfp4" and "nvfp4" not in hardware.cluster.accelerator.types:
        raise RowError(f"`precision` is nvfp4; {hardware.cluster.accelerator.name} has no units of 4 bits")
    more = {OPEN_BATCH: any(OPEN_BATCH in size for size in of_sizes), OPEN_SOFTWARE: not is_named}
    measured_gb = lenient(row, "measured_mem_GB")
    return Case(
        row=printed,
        source=row.get("source") or "",
        family=hardware.family,
        fabric=hardware.fabric,
        stack=stack,
        workload=work,
        cluster=_cluster(hardware.cluster, stack, habits, _logit_bytes(facts), _in_integers(columns)),
        plan=plan,
        facts=facts,
        assumed=(*told, *of_dimensions, *of_sizes, *of_model, *hardware.assumed, *of_plan),
        open=(*open_marks, *(mark for mark, is_open in more.items() if is_open)),
        measured_step_s=measured_step_s(row) or _by_rate_s(row, work, hardware, stack),
        measured_mem_bytes=None if measured_gb is None else 1e9 * measured_gb,
        oom=row.get("oom") == "1",
    )


def _by_rate_s(row: Mapping[str, str], work: Workload, hardware: Machine, stack: str) -> float | None:
    """Seconds of a step from the FLOP/s that JAX software prints, whose attention counts in full, without the mask.

    Source: MaxText before its pull request 1988 (measurements/README.md, section 1).
    """
    rate = lenient(row, "measured_tflops_per_gpu")
    if stack not in COMPILED or not rate:
        return None
    return work.batch * model_flop(with_density(work, 1.0)) / (1e12 * rate * hardware.cluster.accelerators)


@functools.lru_cache(maxsize=4096)
def _cluster(cluster: Cluster, stack: str, habits: Habits, logit_bytes: float | None, integers: bool) -> Cluster:
    """The cluster with the habits of the software; one object for each combination, which batches rely on.

    Units for 8-bit integers run at twice the 16-bit rate where there are none for 8-bit floats (TPU v5e and v5p).
    """
    own = dict(habits.memory) | ({} if logit_bytes is None else {"logit_bytes": logit_bytes})
    changed = dataclasses.replace(cluster.stack, software=stack, habits=habits, **own)
    cluster = dataclasses.replace(cluster, stack=changed)
    if not integers:
        return cluster
    chip = cluster.accelerator
    doubled = dataclasses.replace(chip, peak_8bit_flop_per_s=2.0 * chip.peak_16bit_flop_per_s)
    return dataclasses.replace(cluster, accelerator=doubled)


def _in_integers(columns: Columns) -> bool:
    return "int8" in columns.text("precision").lower()


def _logit_bytes(facts: Mapping[str, float]) -> float | None:
    """What the words of the row say about the loss; None: as its software does by habit, or as the plan says."""
    return GATHERED_LOSS_BYTES if "unfused_attention" in facts else None
