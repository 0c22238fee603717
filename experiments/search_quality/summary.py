"""Judges runs: gaps to the best known value of each problem, by kind and method; targets; where the solver loses."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.search_quality.suite import Case

OWN = "equipoise"
COLUMNS = ("problem", "kind", "method", "clock_s", "cpu_s", "evaluations", "value", "gap", "certified_gap")
COLUMNS += ("to_1_percent_s", "to_0.1_percent_s", "evaluations_to_0.1_percent", "failed")
NEVER = math.inf
BELOW = 1e-6  # of a bound: by which an exact value may be below it, for rounding


def judge(cases: Sequence[Case], runs: dict[tuple[str, str], dict[str, Any]], run_s: float, clock: str) -> dict:
    """Everything of result.json."""
    best = {case.name: _best(case, runs) for case in cases}
    rows = [_row(case, method, run, best[case.name], run_s, clock) for case, method, run in _in_order(cases, runs)]
    kinds, refuted = list(dict.fromkeys(case.kind for case in cases)), _refuted(cases, runs)
    by_kind = {kind: _by_method([row for row in rows if row["kind"] == kind]) for kind in kinds}
    return {
        "problems": [{"name": c.name, "kind": c.kind, "best": _json(best[c.name]), "case": vars(c)} for c in cases],
        "clock": clock,
        "run_s": run_s,
        "load": _load(runs),
        "by_kind": by_kind,
        "targets": [_refutation(refuted), *(target for kind in kinds for target in _targets(kind, rows))],
        "refuted": refuted,
        "losses": _losses(rows, runs),
        "rows": rows,
        "traces": {f"{c.name} {method}": _trace(run, best[c.name], clock) for c, method, run in _in_order(cases, runs)},
    }


def _load(runs: dict[tuple[str, str], dict[str, Any]]) -> float | None:
    """Processes that wanted a core at the end of a run, in the median: on a quiet machine about one a method."""
    known = [run["load"] for run in runs.values() if run.get("load") is not None]
    return float(np.median(known)) if known else None


def _in_order(cases: Sequence[Case], runs: dict[tuple[str, str], Any]) -> list[tuple[Case, str, dict[str, Any]]]:
    return [(case, method, run) for case in cases for (name, method), run in runs.items() if name == case.name]


def _values(run: dict[str, Any]) -> list[float]:
    return [value for value in run["at"].values() if value is not None]


def _best(case: Case, runs: dict[tuple[str, str], dict[str, Any]]) -> float:
    """The least exact value of any method."""
    return min((v for (name, _), run in runs.items() if name == case.name for v in _values(run)), default=NEVER)


def _row(case: Case, method: str, run: dict[str, Any], best: float, run_s: float, clock: str) -> dict[str, Any]:
    value = run["at"].get(f"{run_s:g}")
    times = _reached(run, best, clock)
    bound = run["log_bound"]
    certified = value / math.exp(bound) - 1 if value is not None and bound is not None else None
    own = {"problem": case.name, "kind": case.kind, "method": method, "value": value, "certified_gap": certified}
    own |= {"clock_s": run.get(f"{clock}_s"), "cpu_s": run.get("cpu_s"), "evaluations": run["evaluations"]}
    return (
        own
        | times
        | {"gap": None if value is None else value / best - 1, "failed": run.get("failed")}
        | {f"gap_{mark}_s": None if at is None else at / best - 1 for mark, at in run["at"].items()}
    )


def _reached(run: dict[str, Any], best: float, clock: str) -> dict[str, Any]:
    """When the trace first was so near to the best known; None: never. Only of runs whose score stood up."""
    times: dict[str, Any] = {}
    for words, share in (("1", 0.01), ("0.1", 0.001)):
        own = [step for step in run["trace"] if _values(run) and step[3] <= math.log(best * (1 + share)) + 1e-9]
        times[f"to_{words}_percent_s"] = own[0][1 if clock == "cpu" else 0] if own else None
        times[f"evaluations_to_{words}_percent"] = own[0][2] if own else None
    return times


def _by_method(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    methods = dict.fromkeys(row["method"] for row in rows)
    return {method: _method([row for row in rows if row["method"] == method]) for method in methods}


def _method(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """No answer counts as an infinite gap; times are medians over all problems, never reached among them."""
    gaps = [NEVER if row["gap"] is None else row["gap"] for row in rows]
    certified = [row["certified_gap"] for row in rows]
    marks = [name for name in rows[0] if name.startswith("gap_")]
    figures = {
        "problems": len(rows),
        "answered": sum(row["gap"] is not None for row in rows),
        "median_gap": float(np.median(gaps)),
        "worst_gap": max(gaps),
        "worst_certified_gap": None if None in certified else max(certified),
    }
    for name in ("to_1_percent_s", "to_0.1_percent_s", "evaluations_to_0.1_percent"):
        figures[name] = float(np.median([NEVER if row[name] is None else row[name] for row in rows]))
    for mark in marks:
        figures[f"median_{mark}"] = float(np.median([NEVER if row.get(mark) is None else row[mark] for row in rows]))
    return {name: _json(value) for name, value in figures.items()}


def _json(value: Any) -> Any:
    """Infinity as None: JSON has none."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def per_cent(share: float | None) -> str:
    """A cell of the table: two digits, or a dash where there is no answer or no bound."""
    if share is None:
        return "-"
    if 1e-7 < share < 1e-5:
        return "<.001"
    return f"{100 * share:.2g}" if 1e-7 < share < 0.1 else f"{100 * share:.0f}"


def _targets(kind: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The figures that the project promises for a kind; not met where a problem has no answer."""
    rows = [row for row in rows if row["kind"] == kind]
    own = [row for row in rows if row["method"] == OWN]
    others = [row for row in rows if row["method"] not in (OWN, "exhaustive", "convex")]
    certified = [NEVER if row["certified_gap"] is None else row["certified_gap"] for row in own]
    match kind:
        case "plan":
            gaps = [NEVER if row["gap"] is None else row["gap"] for row in own]
            return [_target("plan: the exhaustive optimum, gap 0", max(gaps), max(gaps) <= 1e-9)]
        case "hardware":
            return [_target("hardware: certified gap at most 0.1 %, all", max(certified), max(certified) <= 1e-3)]
        case "joint":
            near = sum(gap <= 1e-3 for gap in certified) / len(certified)
            return [
                _target("joint: certified gap at most 0.1 % on 80 %", near, near >= 0.8, "of the problems"),
                _target("joint: certified gap at most 1 %, all", max(certified), max(certified) <= 1e-2),
                *_never_worse(own, others),
            ]
        case "mix":
            least = _target("mix: gap of the bound at most 5 %, all", max(certified), max(certified) <= 0.05)
            return [*_never_behind(own, others), least]
        case _:
            return [*_ahead(kind, own, others), _target(f"{kind}: gap of the bound, worst", max(certified), None)]


def _refuted(cases: Sequence[Case], runs: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    """Words for every exact value of any method that is below a bound of the same problem: that bound is wrong."""
    said = []
    for name in [case.name for case in cases]:
        own = {method: run for (of, method), run in runs.items() if of == name}
        bounds = {method: run["log_bound"] for method, run in own.items() if run["log_bound"] is not None}
        for bounding, log_bound in bounds.items():
            for method, run in own.items():
                below = math.expm1(log_bound - math.log(min(_values(run), default=NEVER)))
                if below > BELOW:
                    said.append(f"{name}: {method} is {100 * below:.3g} % below the bound of {bounding}")
    return said


def _refutation(refuted: list[str]) -> dict[str, Any]:
    measured = "none" if not refuted else "; ".join(refuted)
    return {"target": "no method is below any bound", "measured": measured, "met": not refuted}


def _target(words: str, figure: float, met: bool | None, unit: str = "") -> dict[str, Any]:
    measured = "no answer" if math.isinf(figure) else f"{100 * figure:.3g} %{' ' + unit if unit else ''}"
    return {"target": words, "measured": measured, "met": met}


def _never_worse(own: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Targets at every mark, against the best other method of the same problem."""
    targets = []
    for mark in [name for name in own[0] if name.startswith("gap_")] if others else []:
        behind = [_excess(row, [r for r in others if r["problem"] == row["problem"]], mark) for row in own]
        words = f"joint: at most 0.1 % behind the best other method at {mark[4:-2]} s"
        targets.append(_target(words, max(behind), max(behind) <= 1e-3))
    return targets


def _never_behind(own: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """From 2 s on not behind the best other method, from 10 s on ahead of it in the median."""
    targets = []
    for mark in [name for name in own[0] if name.startswith("gap_")] if others else []:
        ahead = [-_excess(row, [r for r in others if r["problem"] == row["problem"]], mark) for row in own]
        seconds, known = float(mark[4:-2]), math.isfinite(float(np.median(ahead)))
        if seconds >= 2.0:
            behind = max(0.0, -min(ahead))
            targets.append(_target(f"mix: never behind another method at {seconds:g} s", behind, behind <= 1e-4))
        if seconds >= 10.0:
            median = float(np.median(ahead)) if known else NEVER
            words = f"mix: 0.5 % better in the median than every other at {seconds:g} s"
            targets.append(_target(words, median, known and median >= 0.005))
    return targets


def _excess(row: dict[str, Any], others: list[dict[str, Any]], mark: str) -> float:
    """How far a row is behind the best of others at a mark (negative: ahead)."""
    best = min((r[mark] for r in others if r.get(mark) is not None), default=NEVER)
    mine = NEVER if row.get(mark) is None else row[mark]
    if math.isinf(best):
        return 0.0 if math.isinf(mine) else -1.0
    return (1 + mine) / (1 + best) - 1


def _ahead(kind: str, own: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Targets against the best other method: ahead in the median, or so many times sooner within 0.1 %."""
    targets = []
    for mark in [name for name in own[0] if name.startswith("gap_")] if others else []:
        ahead = [-_excess(row, [r for r in others if r["problem"] == row["problem"]], mark) for row in own]
        median = float(np.median(ahead))
        words = f"{kind}: 2 % better in the median than every other method at {mark[4:-2]} s"
        known = math.isfinite(median)
        targets.append(_target(words, median if known else NEVER, known and median >= 0.02))
    times = [
        (_time(row), min((_time(r) for r in others if r["problem"] == row["problem"]), default=NEVER)) for row in own
    ]
    ratios = [other / mine if math.isfinite(mine) else 0.0 for mine, other in times]
    if others:
        median = float(np.median(ratios))
        measured = f"{median:.2g} times" if math.isfinite(median) else "no other method arrives"
        targets.append({"target": f"{kind}: or 20 times sooner", "measured": measured, "met": median >= 20})
    return targets


def _time(row: dict[str, Any]) -> float:
    reached = row["to_0.1_percent_s"]
    return NEVER if reached is None else reached


def _losses(rows: list[dict[str, Any]], runs: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    """Words that say where another method has the better answer in the end, or has it sooner."""
    said = [
        f"{name}, {method}: failed: {run['failed'][-200:]}" for (name, method), run in runs.items() if "failed" in run
    ]
    for row in [row for row in rows if row["method"] == OWN]:
        others = [r for r in rows if r["problem"] == row["problem"] and r["method"] != OWN and r["gap"] is not None]
        if not others:
            continue
        first = min(others, key=lambda r: r["gap"])
        mine = NEVER if row["gap"] is None else row["gap"]
        soonest = min(others, key=_time)
        if mine > first["gap"] + 1e-3:
            words = "has no answer" if math.isinf(mine) else f"ends {100 * (mine - first['gap']):.2g} % behind"
            said.append(f"{row['problem']}: the solver {words}; {first['method']} has the best one")
        elif _time(soonest) < _time(row):
            said.append(
                f"{row['problem']}: {soonest['method']} is within 0.1 % after {_time(soonest):.1f} s, "
                f"the solver after {_time(row):.1f} s"
            )
    return said


def _trace(run: dict[str, Any], best: float, clock: str) -> list[tuple[float, float]]:
    """Seconds and gap of each improvement."""
    time = 1 if clock == "cpu" else 0
    return [(step[time], math.expm1(max(step[3] - math.log(best), 0.0))) for step in run["trace"] if best < NEVER]
