"""Finds experiments, runs them and keeps their results.

An experiment is a package; its module `experiment` has a docstring whose first line is its question, `run(folder, say,
*, setting=default, ...) -> results` (a dictionary for JSON; figures and tables go into `folder`) and `tables(results)`,
what the terminal shows. It may have `failure(results)`: what makes the run a failure. Settings are told under `Args:`.
"""

import csv
import difflib
import importlib
import inspect
import json
import os
import pkgutil
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib import metadata
from multiprocessing import active_children, get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import experiments
from costmodel.specs import SpecError
from optimize import Status, cores

RESULTS = Path("results")  # relative to the working directory
PACKAGES = ("equipoise", "jax", "jaxlib", "matplotlib", "numpy", "optax", "scipy")

Say = Callable[[str], None]


def names() -> list[str]:
    """Names of all experiments."""
    return sorted(m.name for m in pkgutil.iter_modules(experiments.__path__) if m.ispkg)


def find(name: str) -> ModuleType:
    """The module of an experiment. Raises `SpecError` for a name that none has."""
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known
        raise SpecError(f"no experiment is called {name!r}; the nearest: {', '.join(near)}")
    return importlib.import_module(f"experiments.{name}.experiment")


def question(module: ModuleType) -> str:
    """The first line of its docstring."""
    return (module.__doc__ or "").strip().splitlines()[0]


def progress() -> Say:
    """Says what is being done on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda message: print(f"\r\x1b[K{message}", end="", file=sys.stderr, flush=True)


def settings(module: ModuleType) -> dict[str, inspect.Parameter]:
    """What its `run` takes by keyword alone."""
    return {name: own for name, own in inspect.signature(module.run).parameters.items() if own.kind is own.KEYWORD_ONLY}


def asked(name: str, words: Sequence[str]) -> dict[str, Any]:
    """The settings of an experiment by words of a command line."""
    import tyro

    module = find(name)

    def collected(**given: Any) -> dict[str, Any]:
        return given

    own = settings(module)
    collected.__signature__ = inspect.Signature(list(own.values()))  # pyright: ignore[reportFunctionMemberAccess]
    collected.__annotations__ = {setting: parameter.annotation for setting, parameter in own.items()}
    collected.__doc__ = module.run.__doc__
    told = f"Settings of the `{name}` experiment."
    return tyro.cli(collected, prog=f"python -m experiments run {name}", description=told, args=list(words))


def run(
    name: str, page: Callable[[ModuleType, dict[str, Any], Path], bytes] | None = None, /, **given: Any
) -> dict[str, Any]:
    """Run one experiment, with settings given, into results/NAME, with its page, and return what result.json holds.

    The folder of an earlier run is replaced only when this one has finished.
    """
    module, say, started = find(name), progress(), time.perf_counter()
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=RESULTS))
    try:
        results = module.run(folder, say, **given)
        made = {
            "experiment": name,
            "question": question(module),
            "inputs": {setting: own.default for setting, own in settings(module).items()} | given,
            **provenance(),
            "seconds": time.perf_counter() - started,
            "results": results,
        }
        if page is not None:
            (folder / "index.html").write_bytes(page(module, made, folder))
        (folder / "result.json").write_text(json.dumps(made, indent=2) + "\n")
        _replace(folder, RESULTS / name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        say("")
    return made


def side_by_side(work: Callable[..., Any], asked: Mapping[str, Sequence[Any]], doing: str, say: Say) -> dict[str, Any]:
    """`work(name, *arguments, say)` by name: each in a process of its own, as many at once as there are cores."""
    together = min(cores.usable(), len(asked))
    if together < 2:
        return {name: work(name, *arguments, say) for name, arguments in asked.items()}
    say(f"{', '.join(asked)}: {doing}")
    with ProcessPoolExecutor(together, mp_context=get_context("spawn")) as pool:
        started = {name: pool.submit(work, name, *arguments, _quietly) for name, arguments in asked.items()}
        try:
            return {name: answer.result() for name, answer in started.items()}
        except BaseException:  # nobody waits for the others any more
            for child in active_children():
                child.terminate()
            raise


def _quietly(message: str) -> None:
    """Progress of processes side by side would be mixed up."""
    del message


def result(folder: Path) -> dict[str, Any]:
    """What a finished run has written."""
    return json.loads((folder / "result.json").read_text())


def _replace(new: Path, old: Path) -> None:
    """Put a finished folder in the place of an earlier one."""
    new.chmod(0o755)
    if not old.exists():
        new.rename(old)
        return
    retired = Path(tempfile.mkdtemp(prefix=".retired-", dir=RESULTS))
    try:
        old.rename(retired / old.name)
        new.rename(old)
    finally:
        if not old.exists():  # interrupted between the two
            (retired / old.name).rename(old)
        shutil.rmtree(retired)


def uninterrupted(status: Status) -> None:
    """Raise where Ctrl-C ended a search, which then answers with the best so far: its experiment ends too."""
    if status is Status.incomplete:
        raise KeyboardInterrupt


def provenance() -> dict[str, Any]:
    """When, where and with which versions."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **_versions()},
        "git_commit": _commit(),
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        },
    }


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Rows that are alike as a CSV file; the first names the columns."""
    write_table(tuple(rows[0]), (row.values() for row in rows), path)


def write_table(columns: Sequence[str], rows: Iterable[Iterable[Any]], path: Path) -> None:
    """Rows of values under the names of their columns as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def write_figures(figures: Mapping[str, Callable[[], Any]], folder: Path) -> None:
    """Figures by name, drawn in the style of all reports, as PNG and SVG."""
    from optimize.report import files_of

    for name, content in files_of(figures).items():
        (folder / name).write_bytes(content)


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def _commit() -> str | None:
    """The commit of the source, with a mark where files differ from it; None outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
