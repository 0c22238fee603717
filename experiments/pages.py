"""Results as pages: one beside the files of each experiment, and one of all that `run all` ran."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.text import Text

from experiments import beside
from optimize.report import page

Result = Mapping[str, Any]
Section = tuple[str, Sequence[Any]]


def of_one(module: ModuleType, result: Result, folder: Path) -> bytes:
    """The question, the answer, figures, published beside ours, tables, and what was run."""
    name, results = result["experiment"], result["results"]
    lines = results.get("beside", []) if isinstance(results, Mapping) else []
    sections = (
        ("Answer", answer(module, results)),
        ("Figures", list(_figures(folder))),
        ("Published beside ours", list(_lines(lines))),
        ("Tables", list(_tables(module, results))),
        ("What was run", [_words(module), *_asked(result)]),
    )
    return page(f"{name}: {result['question']}", sections)


def of_all(ran: Iterable[tuple[ModuleType, Result, Path]], left_out: Mapping[str, str]) -> bytes:
    """One section for each experiment, with everything in it; first what was asked and answered."""
    ran = list(ran)
    sections: list[Section] = [("Questions", [_overview(ran), *(f"{name}: {why}" for name, why in left_out.items())])]
    for module, result, folder in ran:
        results = result["results"]
        lines = results.get("beside", []) if isinstance(results, Mapping) else []
        parts = [Text(result["question"], "bold"), *answer(module, results), *_figures(folder), *_lines(lines)]
        sections.append((result["experiment"], [*parts, *_tables(module, results), *_asked(result)]))
    return page("Equipoise: all experiments", sections)


def answer(module: ModuleType, results: Any) -> list[str]:
    """Its sentences, where the experiment has some."""
    return list(module.answer(results)) if hasattr(module, "answer") else []


def _overview(ran: Sequence[tuple[ModuleType, Result, Path]]) -> Any:
    rows = []
    for module, result, _ in ran:
        results = result["results"]
        wrong = module.failure(results) if hasattr(module, "failure") else None
        lines = results.get("beside", []) if isinstance(results, Mapping) else []
        judged = _counted(lines) if lines else ""
        rows.append((result["experiment"], result["question"], f"failed: {wrong}" if wrong else judged))
    return ("experiment", "question", "published figures"), rows


def _counted(lines: Sequence[Mapping[str, Any]]) -> str:
    kinds = [line["verdict"] for line in lines]
    words = {"holds": "met", "explained": "missed and explained", "fails": "missed"}
    judged = [f"{kinds.count(kind)} {told}" for kind, told in words.items() if kind in kinds]
    return ", ".join(judged) or f"{len(lines)} beside ours"


def _lines(lines: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """The comparisons in full, their notes below them, and what each trust means."""
    if not lines:
        return
    notes = list(dict.fromkeys(line["note"] for line in lines if line["note"]))
    rows = []
    for line in lines:
        *told, note = beside.cells(line)
        rows.append((*told, f"[{notes.index(note) + 1}]" if note else ""))
    used = [i for i in range(len(beside.COLUMNS)) if any(row[i] for row in rows)]
    yield [beside.COLUMNS[i] for i in used], [[row[i] for i in used] for row in rows]
    yield from (f"[{number}] {note}" for number, note in enumerate(notes, 1))
    yield "; ".join(f"{mark}: {words}" for mark, words in beside.trusts(lines).items()) + "."


def _figures(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.glob("*.png")):
        yield path.stem.replace("_", " "), path.read_bytes()


def _tables(module: ModuleType, results: Any) -> Iterator[Any]:
    """What the terminal shows, but for the table that stands here already."""
    for made in module.tables(results):
        title = str(getattr(made, "title", "") or "")
        if title == beside.TITLE:
            continue
        if title:
            yield title
        yield made


def _words(module: ModuleType) -> str:
    """What its docstring says beyond the question, on one line."""
    return " ".join((module.__doc__ or "").strip().splitlines()[1:]).strip()


def _asked(result: Result) -> list[Any]:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    told = f"{result['date']}, {result['seconds']:.0f} s, commit {result['git_commit']}; {versions}"
    return [(("setting", "value"), [(name, str(value)) for name, value in result["inputs"].items()]), told]
