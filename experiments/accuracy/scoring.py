"""Errors of predictions by group, ranks within sweeps, memory and fit by source: the rules of the measurements.

A group is a source with six timed rows or more; smaller sources are one group together. A headline is the mean over
groups, without those that stand apart because their rows hold a slow mode that nothing printed explains.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

SMALL = 6
APART = "HF nanotron"
_SWEEP = ("source", "model", "hardware", "gpus", "seq", "precision", "global_batch_sequences")
_LAYOUT = (
    "micro_batch", "tp", "sp", "cp", "pp", "vpp", "dp", "ep", "zero_stage_or_fsdp", "recompute", "flash_attention"
)  # fmt: skip
_LAYOUTS = 5  # distinct ones that make a sweep, however often each was run


class Scored(NamedTuple):
    """One row: what was measured (None where it was not) and what was predicted for it."""

    row: dict[str, str]
    measured_s: float | None
    predicted_s: float | None
    p10_s: float | None = None
    p90_s: float | None = None
    measured_bytes: float | None = None
    predicted_bytes: float | None = None
    fits: bool | None = None

    @property
    def error(self) -> float | None:
        """Log predicted over measured."""
        if self.measured_s is None or self.predicted_s is None:
            return None
        return math.log(self.predicted_s / self.measured_s)


def score(rows: Sequence[Scored]) -> dict[str, Any]:
    """Every figure of one table of rows."""
    timed = [row for row in rows if row.error is not None]
    by_source: dict[str, list[Scored]] = {}
    for row in timed:
        by_source.setdefault(row.row["source"], []).append(row)
    named: dict[str, list[Scored]] = {}
    for source, own in by_source.items():
        named.setdefault(source if len(own) >= SMALL else f"sources with fewer than {SMALL} rows", []).extend(own)
    groups = {name: _errors(own) for name, own in named.items()}
    ranks, memory = _ranks(timed), _memory(rows)
    count = sum(row.measured_s is not None for row in rows)
    return {
        "timed": count,
        "covered": len(timed),
        "headline": _headline(groups, ranks, memory) | {"coverage": len(timed) / max(count, 1)},
        "groups": groups,
        "rank": ranks,
        "memory": memory,
        "fit": _fit(rows),
    }


def _errors(rows: Sequence[Scored]) -> dict[str, Any]:
    logs = np.array([row.error for row in rows], float)
    size, worst = np.sort(np.abs(logs)), rows[int(np.argmax(np.abs(logs)))]
    bounded = [row for row in rows if row.p10_s and row.p90_s]
    inside = [float(row.p10_s <= row.measured_s <= row.p90_s) for row in bounded]  # pyright: ignore[reportOperatorIssue]
    return {
        "rows": len(rows),
        "median": float(np.median(size)),
        "p90": float(size[min(len(size) - 1, int(0.9 * len(size)))]),
        "bias": float(np.median(logs)),
        "mean_percent": float(np.mean(np.abs(np.expm1(logs)))),
        "inside": float(np.mean(inside)) if inside else math.nan,
        "worst": f"{worst.row.get('model', '')} on {worst.row.get('gpus', '')} {worst.row.get('hardware', '')}",
        "worst_error": float(logs[np.argmax(np.abs(logs))]),
    }


def _headline(
    groups: dict[str, dict[str, Any]], ranks: dict[str, dict[str, float]], memory: dict[str, dict[str, float]]
) -> dict[str, float]:
    """Means over groups without those that stand apart, and over sources: of Kendall's tau and of memory's error."""
    usual = [figures for name, figures in groups.items() if not name.startswith(APART)]
    means = {key: _mean([group[key] for group in usual]) for key in ("median", "p90", "inside")}
    tau, of_memory = _mean([own["tau"] for own in ranks.values()]), _mean([own["median"] for own in memory.values()])
    return means | {"tau": tau, "memory": of_memory, "groups": len(usual), "rows": sum(g["rows"] for g in usual)}


def _mean(figures: list[float]) -> float:
    known = [figure for figure in figures if not math.isnan(figure)]
    return float(np.mean(known)) if known else math.nan


def _ranks(timed: Sequence[Scored]) -> dict[str, dict[str, float]]:
    """Kendall's tau, and what the layout predicted fastest loses to the fastest, in the mean over sweeps by source."""
    sweeps: dict[tuple[str, ...], list[Scored]] = {}
    for row in timed:
        sweeps.setdefault(tuple(row.row[key] for key in _SWEEP), []).append(row)
    by_source: dict[str, list[tuple[float, float]]] = {}
    for key, own in sweeps.items():
        if len({tuple(row.row.get(key, "") for key in _LAYOUT) for row in own}) >= _LAYOUTS:
            by_source.setdefault(key[0], []).append((_tau(own), _regret(own)))
    return {
        source: {
            "sweeps": len(sweeps),
            "tau": _mean([tau for tau, _ in sweeps]),
            "regret": float(np.mean([regret for _, regret in sweeps])),
        }
        for source, sweeps in by_source.items()
    }


def _tau(rows: Sequence[Scored]) -> float:
    measured, predicted = (
        np.array([getattr(row, key) for row in rows], float) for key in ("measured_s", "predicted_s")
    )
    one, other = np.triu_indices(len(rows), 1)
    signs = np.sign(measured[one] - measured[other]) * np.sign(predicted[one] - predicted[other])
    return float(np.mean(signs[signs != 0])) if np.any(signs) else math.nan


def _regret(rows: Sequence[Scored]) -> float:
    chosen = min(rows, key=lambda row: row.predicted_s or math.inf)
    return float(chosen.measured_s or math.nan) / min(row.measured_s or math.inf for row in rows) - 1


def _memory(rows: Sequence[Scored]) -> dict[str, dict[str, float]]:
    """Predicted over measured peak, less one."""
    by_source: dict[str, list[float]] = {}
    for row in rows:
        if row.measured_bytes and row.predicted_bytes:
            by_source.setdefault(row.row["source"], []).append(row.predicted_bytes / row.measured_bytes - 1)
    return {
        source: {
            "rows": len(own),
            "median": float(np.median(np.abs(own))),
            "bias": float(np.median(own)),
            "worst": float(np.max(np.abs(own))),
        }
        for source, own in by_source.items()
    }


def _fit(rows: Sequence[Scored]) -> dict[str, dict[str, int]]:
    """Runs that ran and runs out of memory, and what was said of them."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        failed = row.row.get("oom") == "1"
        if row.fits is None or not (failed or row.measured_s):
            continue
        names = ("out of memory", "said so") if failed else ("ran", "said to fit")
        own = counts.setdefault(row.row["source"], dict.fromkeys(("ran", "said to fit", "out of memory", "said so"), 0))
        own[names[0]] += 1
        own[names[1]] += row.fits != failed
    return counts
