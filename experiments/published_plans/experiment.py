"""How long do the plans of published large runs take by this model, and how many legal plans would be faster?

Each run with its software, beside what was published of it. Ranks compare predictions with predictions: of the plans
that keep what the software could do (schedule, overlaps, number formats, kernels), and of all. Where there are too many
plans, a part drawn at random is looked at, and the fastest is the fastest of these. Left out: OPT-175B, Falcon 180B and
Mixtral, whose plans are not published in full, and PaLM 540B, whose 12 tensor ranks do not nest in a torus.
"""

from collections.abc import Callable, Iterator, Mapping
from math import expm1
from pathlib import Path
from typing import Any

from costmodel.specs import SpecError
from experiments import beside
from experiments.published_plans import figures, ranks
from experiments.published_plans import runs as published
from optimize.report import term_words


def run(
    folder: Path,
    say: Callable[[str], None],
    *,
    most: int = 60_000,
    runs: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Predict each run, rank its plan, draw.

    Args:
        most: Plans that are looked at of each run and space.
        runs: How many of the file; none: all.
        seed: Of the plans that are drawn.
    """
    if min(most, 1 if runs is None else runs) < 1:
        raise SpecError(f"published_plans: `most` is {most}, `runs` {runs}; expected 1 or more")
    told, own = published.predicted()[:runs], published.runs()[:runs]
    rows = []
    for line, each in zip(told, own, strict=True):
        say(each.name)
        spaces = {space: ranks.ranked(each, space, most, seed) for space in ranks.SPACES}
        rows.append({**line, "plan": str(each.plan), "spaces": _nested(spaces)})
    results = {"runs": rows, "beside": list(_beside(rows))}
    figures.draw(results, folder)
    return results


def _nested(spaces: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What the same software runs is among all plans: the fastest of all is no slower."""
    own, every = (spaces[space] for space in ranks.SPACES)
    if own["best_s"] is not None and (every["best_s"] is None or own["best_s"] < every["best_s"]):
        spaces["all"] = every | {key: own[key] for key in ("best_s", "best_plan", "difference")}
    return spaces


def _beside(rows: list[Mapping[str, Any]]) -> Iterator[beside.Line]:
    for row in rows:
        fitted = "among the rows that were fitted; " if row["fitted"] else ""
        words = "; ".join(text for text in (row["assumed"], row["miss"]) if text)
        note = f"{fitted}{row['source']}" + (f"; {words}" if words else "")
        yield beside.line(row["run"], row["published_s"], "P", row["predicted_s"], unit="s", note=note)
    near = float(sum(abs(expm1(row["error"])) <= 0.15 for row in rows))
    yield beside.line("runs within 15 % of what was published", None, "ours", near, note=f"of {len(rows)}")


def answer(results: Mapping[str, Any]) -> list[str]:
    """Three sentences."""
    rows = results["runs"]
    near, nearer = (sum(abs(expm1(row["error"])) <= bar for row in rows) for bar in (0.15, 0.08))
    best = min(rows, key=lambda row: _share(row, "same software"))
    gains = {row["run"]: row["predicted_s"] / (_seconds(row, "same software") or row["predicted_s"]) for row in rows}
    most = max(gains, key=lambda name: gains[name])
    return [
        f"{near} of {len(rows)} published runs are predicted within 15 %, {nearer} within 8 %.",
        f"The plan of {best['run']} is the nearest to the best that its software could have run: "
        f"{100 * _share(best, 'same software'):.2g} % of the legal plans that were looked at and fit are faster.",
        f"Most could have been gained in {most}: by this model alone, the fastest plan of the same software is "
        f"{gains[most]:.2f} times as fast.",
    ]


def _share(row: Mapping[str, Any], space: str) -> float:
    found = row["spaces"][space]["faster"]
    return 1.0 if found is None else found


def _seconds(row: Mapping[str, Any], space: str) -> float | None:
    return row["spaces"][space]["best_s"]


def failure(results: Mapping[str, Any]) -> str | None:
    """Lines outside their tolerance that nothing explains."""
    return beside.failed(results["beside"])


def tables(results: Mapping[str, Any]) -> Iterator[Any]:
    """What the terminal shows."""
    yield beside.table(results["beside"])
    columns = ("run", "ours, s", "plans", "faster, %", "best, s", "all, %", "best, s")
    rows = []
    for row in results["runs"]:
        own, every = (row["spaces"][space] for space in ranks.SPACES)
        seconds = (own["best_s"] or "none legal", _percent(every["faster"]), every["best_s"] or "none legal")
        rows.append((row["run"], row["predicted_s"], f"{own['plans']:,}", _percent(own["faster"]), *seconds))
    yield beside.plain_table(
        columns, rows, "Rank of the published plan, with the same software and of all, by this model"
    )
    rows = [(row["run"], _words(row), row["spaces"]["same software"].get("best_plan", "")) for row in results["runs"]]
    title = "Fastest plan with the same software, and the seconds that it saves"
    yield beside.plain_table(("run", "saves, s", "plan"), rows, title)


def _percent(share: float | None) -> Any:
    return "" if share is None else 100 * share


def _words(row: Mapping[str, Any]) -> str:
    """The three largest differences."""
    found = row["spaces"]["same software"].get("difference", {})
    most = (f"{term_words(name)} {seconds:+.2g}" for name, seconds in list(found.items())[:3])
    return ", ".join(most) or "nothing faster was found"
