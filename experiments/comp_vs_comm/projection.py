"""Operators timed on a few layers and projected to many: how far off, and how much less is timed.

The oracle is the calibrated model of a named device, one operator at a time. A projection multiplies what an operator
took on one layer by the ratio of its counts (FLOP, or bytes of what only moves data and of messages); the law fitted to
three layers adds what every call costs, `a + b * count`.
"""

import csv
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from costmodel import Exact, total
from costmodel.inputs import Block, Cluster, Op
from experiments.comp_vs_comm import layer

SEM = Exact(np)
BASE = {"hidden": 4096.0, "sequence": 2048.0, "batch": 1.0, "tensor": 2.0}
FEW = (BASE, {**BASE, "hidden": 1024.0}, {**BASE, "hidden": 16384.0, "sequence": 4096.0})
_SHAPE = re.compile(r"^m(\d+) n(\d+) k(\d+)$")


def alone(op: Op, cluster: Cluster, sizes: layer.Sizes) -> tuple[Any, Any]:
    """Count and seconds of one operator, forward and backward."""
    whole = layer.one_layer(sizes)
    found, times = layer.counted(
        dataclasses.replace(whole, blocks=(Block(name=op.name, ops=(op,)),)), cluster, sizes, SEM
    )
    flop = total(each.flop for each in (*found.matmuls, *found.attentions))
    moved = total(each.forward_bytes + each.backward_bytes for each in found.memories)
    sent = (found.sync_bytes + found.backward_sync_bytes) * (sizes["tensor"] > 1)
    return flop + moved + sent, layer.compute_s(times) + layer.serialized_s(times)


def projected(cluster: Cluster, sizes: layer.Sizes) -> dict[str, Any]:
    """Errors by kind of operator and of the whole layer, from one layer and from three; and what was timed."""
    truth, one, few, profiled_s = 0.0, 0.0, 0.0, 0.0
    kinds: dict[str, list[np.ndarray]] = {}
    bases = [layer.arranged(**base) for base in FEW]
    listed = zip(_ops(sizes), *(_ops(base) for base in bases), strict=True)
    for own, *profiles in listed:
        count, seconds = alone(own, cluster, sizes)
        points = [alone(op, cluster, base) for op, base in zip(profiles, bases, strict=True)]
        by_one, by_few = points[0][1] * count / points[0][0], _law(points)(count)
        kinds.setdefault(str(own.kind), []).append(_errors(by_one, seconds)[seconds > 0])
        truth, one, few = truth + seconds, one + by_one, few + by_few
        profiled_s += float(points[0][1]) * (BASE["tensor"] if own.kind == "sync" else 1.0)
    depth = sizes["hidden"] / layer.HEAD  # as in GPT-3 and Llama: a layer for each head
    models_s = float(np.sum(truth * depth * sizes["tensor"]))
    return {
        "layers": int(np.size(truth)),
        "error_one": _summary(_errors(one, truth)),
        "error_few": _summary(_errors(few, truth)),
        "by_kind": {kind: _summary(np.concatenate(each)) for kind, each in kinds.items()},
        "profiled_s": profiled_s,
        "models_s": models_s,
        "saved": models_s / profiled_s,
        "saved_by_layer": float(np.sum(truth * sizes["tensor"])) / profiled_s,
    }


def _ops(sizes: layer.Sizes) -> list[Op]:
    return list(layer.one_layer(sizes).blocks[0].ops)


def _law(points: Sequence[tuple[Any, Any]]) -> Callable[[Any], Any]:
    """`a + b * count` by least squares of the relative errors."""
    count, seconds = np.array(points, float).T
    (a, b), *_ = np.linalg.lstsq(np.stack([1 / seconds, count / seconds], axis=1), np.ones(len(count)), rcond=None)
    return lambda other: (a + b * other) * (other > 0)


def _errors(predicted: Any, truth: Any) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.abs(predicted / truth - 1.0)


def _summary(errors: np.ndarray) -> dict[str, float]:
    return {"mean": float(errors.mean()), "median": float(np.median(errors)), "p90": float(np.quantile(errors, 0.9))}


def measured(path: Path, least: int = 8) -> list[dict[str, Any]]:
    """The same on published matmuls of one chip and precision: all shapes from one of them, and from three."""
    if not path.is_file():
        return []
    groups: dict[tuple[str, ...], list[tuple[float, ...]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            shape = _SHAPE.match(row["shape_or_bytes"])
            if row["kind"] == "gemm" and shape and row["unit"] == "TFLOP/s":
                key = (row["source"], row["hardware"], row["dtype"])
                groups.setdefault(key, []).append((*map(float, shape.groups()), 1e12 * float(row["value"])))
    return [_from_shapes(key, np.array(rows)) for key, rows in groups.items() if len(rows) >= least]


def _from_shapes(key: Sequence[str], rows: np.ndarray) -> dict[str, Any]:
    """Projected by FLOP from the shape of the median size; by rate and size law from the 10th, 50th and 90th."""
    flop = 2.0 * rows[:, :3].prod(axis=1)
    seconds, order = flop / rows[:, 3], np.argsort(flop)
    few = order[[int(q * (len(order) - 1)) for q in (0.1, 0.5, 0.9)]]
    by_one = seconds[few[1]] * flop / flop[few[1]]
    terms = np.stack([flop, flop * (1.0 / rows[:, :3]).sum(axis=1)], axis=1)
    law, *_ = np.linalg.lstsq(terms[few] / seconds[few, None], np.ones(3), rcond=None)
    source, hardware, dtype = key
    return {
        "source": source,
        "hardware": hardware,
        "dtype": dtype,
        "matmuls": len(rows),
        "error_one": _summary(_errors(by_one, seconds)),
        "error_few": _summary(_errors(terms @ law, seconds)),
    }


def grid(axes: Mapping[str, Sequence[float]]) -> layer.Sizes:
    """All combinations, flat."""
    spread = np.meshgrid(*(np.array(values, float) for values in axes.values()), indexing="ij")
    return layer.arranged(**{name: values.ravel() for name, values in zip(axes, spread, strict=True)})
