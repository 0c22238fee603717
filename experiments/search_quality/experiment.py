"""How good are the answers of the search, and how soon, beside exact methods, strong baselines and black boxes?

Problems are drawn from the seed: plans on a given cluster, hardware of a given plan, both together, mixes of jobs. Each
method runs in a process of its own, its clock started before Python is; imports and compilation count for all. Every
vectorised baseline has the solver's evaluator, its projection onto the limits and its decoding of plans. What is
reported is scored again in float64 with all rules and limits; an answer that breaks one counts as none. Finished runs
are kept in results/search_quality_runs, so that an interrupted suite goes on where it was as long as no file of the
packages has changed.

CMA-ES and TPE take part where `pip install equipoise[search]` has been done.
"""

import dataclasses
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from experiments.runner import write_table
from experiments.search_quality import figures, summary
from experiments.search_quality.methods import OF_KIND, OPTIONAL
from experiments.search_quality.suite import KINDS, Case, draw
from experiments.sources import digest_of_sources

QUICK = ("equipoise", "evolution", "exhaustive", "convex")
RUNS = Path("results/search_quality_runs")  # relative to the working directory


def run(
    folder: Path,
    say: Callable[[str], None],
    *,
    seed: int = 0,
    full: bool = False,
    quick: bool = False,
    each: int = 0,
    seconds: float = 0.0,
    kinds: tuple[str, ...] = KINDS,
    methods: tuple[str, ...] = (),
    clock: Literal["wall", "cpu"] = "wall",
    side_by_side: int = 0,
    fresh: bool = False,
) -> dict[str, Any]:
    """Draw, run everything, judge, plot.

    Args:
        seed: Of the problems and of every method.
        full: Ten problems of each kind and 60 seconds for each run, instead of six and 30.
        quick: One problem of each kind, 4 seconds, no black boxes: for tests.
        each: Problems of each kind; 0: as `full` and `quick` say.
        seconds: Of one run; 0: as `full` and `quick` say. One run gives the marks of 1, 2, 5, 10, 30 and 60 s up to it.
        kinds: Which kinds of problems.
        methods: Which methods; none: all that can be imported.
        clock: Marks by wall time, or (for a busy machine) CPU time of all threads of a run, which is recorded always.
        side_by_side: Baselines run at once; 0: as many as there are cores. The solver runs alone.
        fresh: Forget runs that an interrupted suite has finished.
    """
    if fresh:
        shutil.rmtree(RUNS, ignore_errors=True)
    RUNS.mkdir(parents=True, exist_ok=True)
    problems, run_s = (10, 60.0) if full else (1, 4.0) if quick else (6, 30.0)
    cases, run_s, wanted = draw(seed, kinds, each or problems), seconds or run_s, methods or (QUICK if quick else ())
    orders = [(case, method) for case in cases for method in there(case.kind, wanted)]
    asked = {"seed": seed, "seconds": run_s, "clock": clock}
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    for case, method in [order for order in orders if order[1] == "equipoise"]:
        say(f"{len(runs) + 1} of {len(orders)}: {case.name}, {method}")
        runs[case.name, method] = once(case, method, asked)
    others = [order for order in orders if order[1] != "equipoise"]
    with ThreadPoolExecutor(side_by_side or os.cpu_count() or 1) as pool:
        started = {pool.submit(once, case, method, asked): (case.name, method) for case, method in others}
        try:
            for future, key in started.items():
                say(f"{len(runs) + 1} of {len(orders)}: {key[0]}, {key[1]}")
                runs[key] = future.result()
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    results = summary.judge(cases, runs, run_s, clock)
    say("figures")
    figures.draw(results, folder)
    columns = summary.COLUMNS
    write_table(columns, ([row[name] for name in columns] for row in results["rows"]), folder / "runs.csv")
    return results


def there(kind: str, wanted: Sequence[str]) -> list[str]:
    """Methods of one kind that are wanted (none named: all) and can be imported."""
    known = [name for name in OF_KIND[kind] if not wanted or name in wanted]
    return [name for name in known if name not in OPTIONAL or importlib.util.find_spec(OPTIONAL[name])]


def once(case: Case, method: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """One method on one problem, or what is kept of it. A failed process is reported and counts as no answer."""
    order = {"case": dataclasses.asdict(case), "method": method, **asked}
    named = json.dumps(order | {"sources": digest_of_sources()}, sort_keys=True)
    kept = RUNS / f"{hashlib.sha256(named.encode()).hexdigest()[:24]}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    cold = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    cold |= {"PYTHONWARNINGS": "ignore"}
    started = json.dumps(order | {"started": time.time()})
    command = [sys.executable, "-m", "experiments.search_quality.worker", started]
    done = subprocess.run(command, env=cold, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip()[-2000:], "at": {}, "trace": [], "log_bound": None, "evaluations": 0}
    result = json.loads(done.stdout.splitlines()[-1])
    part = kept.with_suffix(".part")
    part.write_text(json.dumps(result))
    part.replace(kept)
    return result


def tables(results: dict[str, Any]) -> Iterator[Any]:
    """A table of each kind, its methods at the marks; then the targets."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    for kind, methods_of in results["by_kind"].items():
        marks = [name for name in next(iter(methods_of.values())) if name.startswith("median_gap_")]
        title = f"{kind}: % above the best known, median at seconds of {results['clock']} time, worst at the end"
        headings = ["method", "answers", *(f"{mark[11:-2]} s" for mark in marks), "worst", "gap"]
        table = Table(*headings, title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for method, own in methods_of.items():
            shares = (summary.per_cent(own[name]) for name in (*marks, "worst_gap", "worst_certified_gap"))
            table.add_row(method, f"{own['answered']} of {own['problems']}", *shares)
        yield table
    table = Table("target", "measured", "met", title="What it must show", title_justify="left")
    for target in results["targets"]:
        table.add_row(target["target"], target["measured"], {True: "yes", False: "no", None: "-"}[target["met"]])
    yield table
    yield from results["losses"]


def failure(results: dict[str, Any]) -> str | None:
    """What makes the whole run a failure: an answer below what was told to be a bound."""
    return "; ".join(results["refuted"]) or None


def answer(results: Mapping[str, Any]) -> list[str]:
    """Three sentences."""
    met = [row for row in results["targets"] if row["met"]]
    losses, count = results["losses"], len(results["problems"])
    return [
        f"Each method had {results['run_s']:g} s ({results['clock']} time) for each of {count} problems"
        f" ({_load(results)}).",
        f"{len(met)} of {len(results['targets'])} targets are met.",
        f"The solver loses in {len(losses)} places" + (f", first: {losses[0].rstrip('.')}." if losses else "."),
    ]


def _load(results: Mapping[str, Any]) -> str:
    return "load not known" if results["load"] is None else f"load {results['load']:.1f}"
