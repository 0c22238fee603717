"""The option axes of a lattice: for each row of degrees, the options that are legal with it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from costmodel.formulas import domain_sizes
from costmodel.inputs import SCHEDULES, Plan, embed, options
from costmodel.specs import Demands
from optimize.lattice.axis import Axis, Fixed, Keeps, distinct, divisors, recompute_names, wanted

T = TypeVar("T")
Rows = Mapping[str, np.ndarray]
LARGEST_VIRTUAL = 256
SHARES = (0.25, 0.5, 0.75, 1.0)  # of the layers, for full recompute


class Remembered(dict[str, np.ndarray]):
    """Columns, of which several axes ask for the same."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self._known: dict[Any, Any] = {}

    def distinct(self, keys: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The first place of each distinct row of some columns, and which of them each row is."""
        return self.once(tuple(keys), lambda: distinct([self[name] for name in keys]))

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What is made of these columns, the first time that it is asked for."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]


def axis(
    rows: Rows,
    keys: Sequence[str],
    make: Callable[[Rows], tuple[Rows, np.ndarray]],
    embedded: Callable[[Rows, Any], dict[str, Any]],
) -> Axis:
    """The axis whose options depend on some columns: `make` gives candidates by distinct key and which are legal."""
    known = rows if isinstance(rows, Remembered) else Remembered(rows)
    first, which = known.distinct(keys)
    table, legal = make({key: rows[key][first][:, None] for key in keys})
    count = legal.sum(axis=1)
    entries = {name: np.broadcast_to(column, legal.shape)[legal] for name, column in table.items()}
    offset = np.cumsum(count) - count
    floats = {dtype: embedded(entries, dtype) for dtype in (np.float32, np.float64)}
    return Axis(entries, offset[which], count[which], floats)


def _rows_of(table: Mapping[Any, Any], chosen: np.ndarray, dtype: Any) -> Any:
    """Rows of one table of options, one for each index, as arrays in the fields."""
    rows = list(table.values())
    names = [f.name for f in dataclasses.fields(rows[0])]
    return type(rows[0])(**{name: np.array([getattr(row, name) for row in rows], dtype)[chosen] for name in names})


def stages_axis(d: Demands, keeps: Keeps, rows: Rows, fixed: Fixed) -> Axis:
    """Schedules and virtual stages."""
    names, several = list(SCHEDULES), [schedule.interleaves for schedule in SCHEDULES.values()]
    most = min(d.layers, LARGEST_VIRTUAL)
    pairs = [(i, v) for i in range(len(names)) for v in (range(2, most + 1) if several[i] else [1])]
    first = names.index(Plan.schedule)
    pairs = sorted(pairs, key=lambda pair: (pair[0] != first, not several[pair[0]], pair))
    schedule, virtual = np.array(pairs, int).T
    asked = wanted(fixed, "schedule", np.array(names)[schedule]) & wanted(fixed, "virtual_stages", virtual)
    schedule, virtual = schedule[asked], virtual[asked]
    given = fixed.get("stage_layers")

    def make(key: Rows) -> tuple[Rows, np.ndarray]:
        stages = key["pipeline"]
        held, fullest = _layers_of_stages(d.layers, stages, given)
        legal = np.zeros((len(stages), len(schedule)), bool)
        for index, name in enumerate(names):
            v = virtual[schedule == index]
            chosen = {"schedule": name, "virtual_stages": v, "stage_layers": held}
            legal[:, schedule == index] = keeps({**key, **chosen}, new=chosen) & (fullest % v == 0)
        plain = legal[:, schedule == first].any(axis=1, keepdims=True)
        legal &= (stages > 1) | ~plain | (schedule == first)
        return {"schedule": schedule[None], "virtual_stages": virtual[None]}, legal

    def embedded(entries: Rows, dtype: Any) -> dict[str, Any]:
        row = _rows_of(d.cluster.stack.habits.schedule_rows(), entries["schedule"], dtype)
        return {"schedule": row, "virtual_stages": entries["virtual_stages"].astype(dtype)}

    return axis(rows, ("pipeline", "data", "microbatch"), make, embedded)


def _layers_of_stages(layers: int, stages: np.ndarray, given: Sequence[int] | None) -> tuple[Any, Any]:
    """The column `stage_layers` of `even_layers`, or of what is given; and layers of the fullest stage."""
    if given is not None:
        return (len(given), sum(given), min(given)), max(given)
    odd = layers % stages > 0
    return (odd * stages, odd * layers, odd * (layers // stages)), -(-layers // stages)


def shards_axis(d: Demands, keeps: Keeps, rows: Rows, fixed: Fixed, every: bool = True) -> Axis:
    """ZeRO stages, each over all of data x context (0), or over fewer ranks.

    `every`: any divisor of theirs; otherwise the ranks of one domain of some tier. Rows without `accelerators` are of
    the cluster's.
    """
    stages = np.array([z for z in options.ZERO_STAGES if wanted(fixed, "zero_stage", z)], int)
    precision = d.cluster.stack.habits.precision_row(fixed.get("precision", "bf16"))
    cast = max(precision.copy_bytes, precision.weight_cast_bytes, precision.shared_master) > 0  # not under ZeRO 3
    shared = any(schedule.ways > 1 and wanted(fixed, "schedule", name) for name, schedule in SCHEDULES.items())

    known, given = rows if isinstance(rows, Remembered) else Remembered(rows), fixed.get("data_shard")
    known.setdefault("accelerators", np.full(len(rows["data"]), int(d.cluster.accelerators)))

    def make(key: Rows) -> tuple[Rows, np.ndarray]:
        asked = "shards", every, given, shared
        zero, shard, legal = known.once(asked, lambda: _all_shards(d, keeps, key, given, every))
        chosen, ranks = np.isin(zero[0], stages), key["data"] * key["context"]
        zero, shard, legal = zero[:, chosen], shard[:, chosen], legal[:, chosen]
        undivided = (ranks == 1) & legal[:, zero[0] == 0].any(axis=1, keepdims=True)
        idle = (zero > 0) & ((zero < 3) | (not cast))
        alone = key["pipeline"] == 1 if shared else True  # two ways through a pipeline are two copies
        return {"zero_stage": zero, "data_shard": shard}, legal & ~(undivided & idle & alone)

    def embedded(entries: Rows, dtype: Any) -> dict[str, Any]:
        row = _rows_of(options.ZERO_STAGES, entries["zero_stage"], dtype)
        return {"zero": row, "data_shard": entries["data_shard"].astype(dtype)}

    keys = ("domain", "tensor", "context", "data", "expert", "expert_tensor", "accelerators")
    return axis(known, (*keys, "pipeline") if shared else keys, make, embedded)


def _all_shards(
    d: Demands, keeps: Keeps, key: Rows, given: int | None, every: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every ZeRO stage with the ranks that may share weights (those that are given), and which are legal."""
    ranks, stages = key["data"] * key["context"], np.array(list(options.ZERO_STAGES), int)
    if given is not None:
        shards = np.full_like(ranks, int(given))
    else:
        fewer = _divisors_of(ranks) if every else _in_domains(d, key)
        shards = np.concatenate([np.zeros_like(ranks), np.where((fewer > 1) & (fewer < ranks), fewer, -1)], axis=1)
    zero, shard = stages[None, None], shards[..., None]  # an axis each: what reads one of them is computed once
    possible = (shard >= 0) & ((shard == 0) | (zero > 0))
    chosen = {"zero_stage": zero, "data_shard": np.maximum(shard, 0)}
    legal = possible & keeps({name: column[..., None] for name, column in key.items()} | chosen, new=chosen)
    return (
        np.tile(stages, shards.shape[1])[None],
        np.repeat(shards, len(stages), axis=1),
        legal.reshape(len(shards), -1),
    )


def _divisors_of(ranks: np.ndarray) -> np.ndarray:
    """Divisors of any of the numbers of ranks as columns; 1 where one is no divisor of the row's own."""
    every = np.unique(np.concatenate([divisors(int(n)) for n in np.unique(ranks)] or [np.ones(1, int)]))
    return np.where(ranks % every == 0, every, 1)


def _in_domains(d: Demands, key: Rows) -> np.ndarray:
    """Ranks of one tensor rank inside a domain of each tier but the last, which holds all."""
    sizes = domain_sizes(d.cluster.tiers, key["domain"].astype(float))[:-1]
    inside = [np.broadcast_to((size // key["tensor"]).astype(int), key["tensor"].shape) for size in sizes]
    return np.concatenate([np.zeros((len(key["tensor"]), 0), int), *inside], axis=1)


def switches_axis(d: Demands, keeps: Keeps, rows: Rows, fixed: Fixed) -> Axis:
    """Sequence parallelism off and on, ring and all-to-all."""
    parallel, exchange = np.array([[1, 0, 1, 0], [0, 0, 1, 1]])
    kinds = np.array(["ring", "all_to_all"])

    def make(key: Rows) -> tuple[Rows, np.ndarray]:
        chosen = {"sequence_parallel": parallel, "context_kind": kinds[exchange]}
        legal = keeps({**key, **chosen}, new=chosen) & wanted(fixed, "sequence_parallel", parallel.astype(bool))
        legal = legal & wanted(fixed, "context_kind", kinds[exchange])
        alike = (key["context"] == 1) & (exchange == 1) & (fixed.get("context_kind") != "all_to_all")
        return {"sequence_parallel": parallel[None], "all_to_all": exchange[None]}, legal & ~alike

    def embedded(entries: Rows, dtype: Any) -> dict[str, Any]:
        ring = (1 - entries["all_to_all"]).astype(dtype)
        return {"sequence_parallel": entries["sequence_parallel"].astype(dtype), "context_ring": ring}

    return axis(rows, ("tensor", "context"), make, embedded)


def least_fill(axis: Axis, pipeline: np.ndarray) -> np.ndarray:
    """Turns of a plain stage, at least, in which a pipeline of each row fills and drains, from the schedules that are
    legal with it: none where one may split off weight gradients, fold or go both ways."""
    idle = np.array([not (s.splits or s.folds or s.ways > 1) for s in SCHEDULES.values()])
    share = np.append(idle[axis.table["schedule"]] / axis.table["virtual_stages"], 0.0)
    some = np.flatnonzero(axis.count > 0)
    ends = np.stack([axis.offset[some], axis.offset[some] + axis.count[some]], -1).ravel()
    least = np.zeros(len(axis.count))
    least[some] = np.minimum.reduceat(share, ends)[::2]
    return least * (pipeline - 1)


def recompute_axis(d: Demands, keeps: Keeps, rows: Rows, fixed: Fixed) -> Axis:
    """Nothing, the attention's core, or everything in a share of the layers that is whole layers of each stage."""
    names = recompute_names(fixed)
    shares = SHARES if fixed.get("recompute_share") is None else (float(fixed["recompute_share"]),)
    pairs = [(names.index(name), share) for name in names for share in _shares_of(name, shares, fixed)]
    mode, share = (np.array(column) for column in zip(*pairs, strict=True))
    whole = np.array([name == "full" for name in names])[mode]

    def make(key: Rows) -> tuple[Rows, np.ndarray]:
        each = d.layers // key["pipeline"]
        quarters = np.ceil(share * each - 1e-9) / np.maximum(each, 1)
        partial = whole & (share < 1) & (fixed.get("recompute_share") is None)
        found = np.where(partial, quarters, share)
        legal = np.broadcast_to(wanted(fixed, "recompute", np.array(names)[mode]), found.shape).copy()
        legal &= ~partial | ((d.layers % key["pipeline"] == 0) & (quarters < 1))
        again = (found[:, 1:] == found[:, :-1]) & (mode[1:] == mode[:-1]) & partial[1:]
        legal[:, 1:] &= ~again
        return {"recompute": mode[None], "recompute_share": found}, legal

    def embedded(entries: Rows, dtype: Any) -> dict[str, Any]:
        return {"recompute": _recompute_rows(d, names, entries, dtype)}

    return axis(rows, ("pipeline",), make, embedded)


def _shares_of(name: str, shares: Sequence[float], fixed: Fixed) -> Sequence[float]:
    return shares if name == "full" or fixed.get("recompute_share") is not None else (1.0,)


def _recompute_rows(d: Demands, names: list[str], entries: Rows, dtype: Any) -> Any:
    """Rows of mode and share, each distinct pair looked up once."""
    key = entries["recompute"] * 2.0 + entries["recompute_share"]
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    plans = [
        Plan(recompute=names[int(entries["recompute"][i])], recompute_share=float(entries["recompute_share"][i]))
        for i in first
    ] or [Plan()]  # without rows of degrees
    looked_up = [embed(plan, d.workload, 1.0, d.cluster.stack.habits).recompute for plan in plans]
    return _rows_of(dict(enumerate(looked_up)), which.ravel(), dtype)
