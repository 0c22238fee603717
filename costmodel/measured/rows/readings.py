"""What a row leaves open: settled where memory decides, averaged over where nothing does."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from costmodel.inputs import layers
from costmodel.measured.rows.batches import evaluated
from costmodel.measured.rows.cases import case as read
from costmodel.measured.rows.job_sizes import OPEN_BATCH
from costmodel.measured.rows.layouts import OPEN_LAYOUT, OPEN_MICROBATCH, OPEN_PRECISION, OPEN_RECOMPUTE, stage_layers
from costmodel.measured.rows.notes import OPEN_SOFTWARE, megatron_on
from costmodel.measured.rows.records import Case

_SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)  # of the layers, recomputed in full
_RUNGS = len(_SHARES) + 2
_SELECTIVE: dict[str, Any] = {"recompute": "selective"}


def settle(cases: Sequence[Case]) -> list[Case]:
    """The cases with what row and software leave open chosen: a likely layout, then the least recompute that fits."""
    return _with_least_recompute(_with_likely_layouts(cases))


def _with_least_recompute(cases: Sequence[Case]) -> list[Case]:
    is_open = [OPEN_RECOMPUTE in case.open and case.cluster.stack.habits.recompute is None for case in cases]
    return _first_that_fits(cases, is_open, _RUNGS, _with_recompute)


def lightened(cases: Sequence[Case]) -> list[Case]:
    """The cases as they fit in memory, also those whose software is not known to recompute whole layers.

    Megatron-Core recomputes cheap modules or offloads instead, which rows seldom print and which costs little time;
    microbatches that are not printed may be smaller, with more of them.
    """
    cases = _first_that_fits(cases, [OPEN_RECOMPUTE in case.open for case in cases], _RUNGS, _with_recompute)
    cases = _first_that_fits(cases, [OPEN_MICROBATCH in case.open for case in cases], 8, _with_smaller_microbatch)
    return _first_that_fits(
        cases, ["offload" in case.row.get("zero_stage_or_fsdp", "") for case in cases], 2, _offloaded
    )


def _first_that_fits(
    cases: Sequence[Case], is_open: Sequence[bool], rungs: int, change: Callable[[Case, int], Case]
) -> list[Case]:
    """The cases at the first rung of `change` at which they fit, or at the last one."""
    chosen = list(cases)
    waiting = [i for i, unsettled in enumerate(is_open) if unsettled]
    for rung in range(rungs):
        tried = [change(cases[i], rung) for i in waiting]
        peaks = evaluated(tried).peak_bytes
        too_large = []
        for i, case, peak_bytes in zip(waiting, tried, peaks, strict=True):
            chosen[i] = case
            if not peak_bytes <= case.cluster.accelerator.hbm_bytes:
                too_large.append(i)
        waiting = too_large
    return chosen


_TENSORS, _PIPELINES, _MICROBATCHES = (1, 2, 4, 8), (1, 2, 4, 8, 16, 32), (1, 2, 4, 8)
_TRIED = 0.12  # of the log: a layout slower than the fastest by this is 1/e as likely to have been run
"""C: of 451 calibration rows that were read without their layout, among .07 to .3. With it memory is off by .19 in the
mean over sources, and by .43 with the fastest layout that fits; time by .087 and .094. A wider choice is better where
sweeps tried bad layouts too (360 rows that print memory: .168 at .3, .181 here), and worse for tuned runs (time of 378
rows of twelve sources: .131 and .112)."""


def _with_likely_layouts(cases: Sequence[Case]) -> list[Case]:
    """The cases with a layout where theirs is open: of those that fit, each as likely as it is fast, the one that is
    nearest to their medians of time and of memory."""
    chosen, at = list(cases), [i for i, case in enumerate(cases) if OPEN_LAYOUT in case.open]
    layouts = [_layouts(cases[i]) for i in at]
    figures = evaluated(_with_least_recompute([layout for own in layouts for layout in own]))
    ends = np.cumsum([len(own) for own in layouts])
    for i, own, end in zip(at, layouts, ends, strict=True):
        here = slice(end - len(own), end)
        limit_bytes = float(cases[i].cluster.accelerator.hbm_bytes)
        usual = np.array([_is_usual(layout) for layout in own])
        chosen[i] = own[_median_layout(figures.step_s[here], figures.peak_bytes[here], limit_bytes, usual)]
    return chosen


def _is_usual(case: Case) -> bool:
    """DeepSpeed and PyTorch's own divide neither tensors nor layers, unless nothing else fits."""
    return case.stack not in ("deepspeed", "fsdp") or case.plan.tensor * case.plan.pipeline == 1


def _median_layout(step_s: np.ndarray, peak_bytes: np.ndarray, limit_bytes: float, usual: np.ndarray) -> int:
    """The place of the layout, of usual ones if any fits; where none fits, among those that need the least memory; the
    first where sizes are beyond what numbers hold."""
    known = np.isfinite(step_s) & np.isfinite(peak_bytes)
    if not known.any():
        return 0
    possible = np.flatnonzero(known & (peak_bytes <= max(limit_bytes, float(peak_bytes[known].min()))))
    possible = possible[usual[possible]] if usual[possible].any() else possible
    logs = np.log([step_s[possible], peak_bytes[possible]])
    weights = np.exp((logs[0].min() - logs[0]) / _TRIED)
    beyond = logs - np.array([[_weighted_median(of_kind, weights)] for of_kind in logs])
    return int(possible[np.argmin((beyond**2).sum(axis=0))])


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, 0.5 * reached[-1])])


def _layouts(case: Case) -> list[Case]:
    """The case with each layout that its accelerators, layers, experts and batch allow, or as it is where there is
    none. Data ranks that its batch and accumulation tell stay; where a rank's batch is told, that of a step has as many
    of it as there are data ranks, and under a pipeline microbatches of any size."""
    plan, batch, told = case.plan, int(case.workload.batch), case.plan.tensor * case.plan.pipeline > 1
    each = 0 if told or case.row.get("global_batch_sequences") else int(case.facts.get("local_batch", 0))
    found = []
    for tensor, pipeline in itertools.product(_TENSORS, _PIPELINES):
        ranks, left = divmod(plan.accelerators, tensor * pipeline)
        if left or tensor > (plan.domain or tensor) or pipeline > layers(case.workload):
            continue
        data = plan.data if told else ranks if each else min(ranks, batch)
        if data == 0 or ranks % data or (told and ranks != data * plan.context) or (tensor * ranks) % plan.expert:
            continue
        sizes = _MICROBATCHES if OPEN_MICROBATCH in case.open or (each and pipeline > 1) else (plan.microbatch,)
        own, sized = (each, _of_batch(case, float(each * data))) if each else (max(1, batch // data), case)
        for microbatch in (size for size in sizes if size <= own):
            found.append(_laid_out(sized, tensor, pipeline, data, microbatch))
    return found or [case]


def _laid_out(case: Case, tensor: int, pipeline: int, data: int, microbatch: int) -> Case:
    """The case with these degrees; what is left of its accelerators are context ranks."""
    held = layers(case.workload)
    changed = _planned(
        case,
        tensor=tensor,
        pipeline=pipeline,
        context=case.plan.accelerators // (tensor * pipeline * data),
        data=data,
        data_shard=None,
        microbatch=microbatch,
        sequence_parallel=tensor > 1 and case.cluster.stack.habits.sequence_parallel,
        stage_layers=stage_layers(held, pipeline) if held % pipeline else None,
    )
    told = f"tp {tensor} pp {pipeline} microbatch {microbatch}: the median of the layouts that fit"
    assumed = (*(note for note in case.assumed if not note.startswith(("tp ", "microbatch "))), told)
    still_open = tuple(mark for mark in case.open if mark != OPEN_MICROBATCH)
    return dataclasses.replace(changed, assumed=assumed, open=still_open)


def _offloaded(case: Case, rung: int) -> Case:
    """The case with its optimizer's states in the host's memory, where the row says that they may be."""
    plan = dataclasses.replace(case.plan, offload_optimizer=1.0, offload_activations=1.0)
    return dataclasses.replace(case, plan=plan) if rung else case


def _with_smaller_microbatch(case: Case, rung: int) -> Case:
    micro = max(1, case.plan.microbatch >> rung)
    return dataclasses.replace(case, plan=dataclasses.replace(case.plan, microbatch=micro)) if rung else case


def _with_recompute(case: Case, rung: int) -> Case:
    """The case with none, with what its software calls selective, or with a share of its layers recomputed in full.

    Software that always recomputes something starts with what it calls selective.
    """
    values: dict[str, Any] = {"recompute": "none"}
    if rung == 1 or (rung == 0 and case.cluster.stack.habits.always_recomputes):
        values = {"recompute": "full", "recompute_share": 0.5} if case.facts.get("selective_layers") else _SELECTIVE
    if rung > 1:
        values = {"recompute": "full", "recompute_share": _SHARES[rung - 2]}
    chosen = values["recompute"] if rung < 2 else f"full of {100 * values['recompute_share']:g} % of the layers"
    plan = dataclasses.replace(case.plan, **values)
    return dataclasses.replace(case, plan=plan, assumed=(*case.assumed, f"recompute {chosen}: the least that fits"))


def alternatives(case: Case) -> tuple[Case, ...]:
    """Open readings of one row, over which its prediction is averaged; the row itself where nothing is open.

    Plain data ranks without a pipeline whose microbatch is not printed: half of the one assumed, it, and twice as much.
    """
    plan = case.plan
    if OPEN_MICROBATCH not in case.open or plan.pipeline > 1 or plan.zero_stage == 3 or plan.microbatch < 2:
        return (case,)
    own = case.workload.batch / plan.data
    sizes = [size for size in (plan.microbatch // 2, plan.microbatch, 2 * plan.microbatch) if size <= own]
    return tuple(dataclasses.replace(case, plan=dataclasses.replace(plan, microbatch=size)) for size in sizes)


def doubts(case: Case) -> tuple[tuple[float, Case], ...]:
    """Other readings of what a row leaves open, each with its probability; its own reading has the rest.

    Probabilities are assumptions: an unnamed format is of 8 bits on one of five machines that have them, unnamed
    recompute is another than the least that fits in three of ten. Layouts are too many to list (`open_log_sd`).
    """
    other: list[tuple[float, Case]] = []
    if OPEN_PRECISION in case.open and "fp8" in case.cluster.accelerator.types:
        other.append((0.2, _planned(case, precision="fp8_tensor")))
    if OPEN_RECOMPUTE in case.open:
        heavier = _MODES[_MODES.index(case.plan.recompute) + 1 :]  # lighter ones do not fit, or are no habit
        other += [(0.3 / len(heavier), _planned(case, recompute=mode, recompute_share=1.0)) for mode in heavier]
    if OPEN_BATCH in case.open:
        sizes = (0.5 * case.workload.batch, 2.0 * case.workload.batch)
        other += [(0.25, _of_batch(case, size)) for size in sizes]
    return tuple(other)


def in_other_software(case: Case) -> tuple[tuple[float, Case], ...]:
    """The row as other software of its time would run it, where it does not name its own, each with its probability
    (an assumption); as read, without fitted constants. Tensors and layers are divided by Megatron's kind, or by
    PyTorch's own; DeepSpeed alone divides neither."""
    names, weight = (megatron_on(case.family), "fsdp"), 0.1
    if case.plan.tensor * case.plan.pipeline == 1:
        names, weight = (*names, "deepspeed"), 0.2
    return tuple((weight, other) for other in _run_by(case, names))


def in_any_software(case: Case) -> tuple[Case, ...]:
    """The same as each class of software other than the one assumed for it would hold it in memory.

    C: calibration rows without the names of their software are off by .18 in the mean over sources as the assumed class
    has them, by .09 in the geometric mean over all, and by .11 where that is without their own class.
    """
    return _run_by(case, classes_on(case.family))


def classes_on(family: str) -> tuple[str, ...]:
    """Classes of software that hold tensors by PyTorch's allocator on hardware of a family."""
    return (megatron_on(family), "fsdp", "deepspeed", "nanotron")


def _run_by(case: Case, names: Sequence[str]) -> tuple[Case, ...]:
    if OPEN_SOFTWARE not in case.open:
        return ()
    others = (read(case.row, name) for name in names if name != case.stack)
    return tuple(other for other in others if isinstance(other, Case))


_MODES = ("none", "selective", "full")


def _planned(case: Case, **fields: Any) -> Case:
    return dataclasses.replace(case, plan=dataclasses.replace(case.plan, **fields))


def _of_batch(case: Case, batch: float) -> Case:
    micro = max(1, min(case.plan.microbatch, int(batch / case.plan.data)))
    changed = dataclasses.replace(case.workload, batch=batch)
    return dataclasses.replace(_planned(case, microbatch=micro), workload=changed)
