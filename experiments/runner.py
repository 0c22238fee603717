"""Finds experiments, runs them and keeps their results.

An experiment is a package; its module `experiment` has a docstring whose first line is its question, a frozen dataclass
`Config` of its settings, `run(config, folder, say) -> results` (a dictionary for JSON; figures and tables go into
`folder`) and `tables(results)`, what the terminal shows. It may have `failure(results)`: what makes the run a failure.
"""

import csv
import difflib
import importlib
import json
import os
import pkgutil
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import experiments
from costmodel.specs import SpecError
from optimize import Status

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


def run(name: str, config: Any) -> dict[str, Any]:
    """Run one experiment into results/NAME and return what result.json holds.

    The folder of an earlier run is replaced only when this one has finished.
    """
    module, say, started = find(name), progress(), time.perf_counter()
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=RESULTS))
    try:
        results = module.run(config, folder, say)
        made = {
            "experiment": name,
            "question": question(module),
            "inputs": asdict(config),
            **provenance(),
            "seconds": time.perf_counter() - started,
            "results": results,
        }
        (folder / "result.json").write_text(json.dumps(made, indent=2) + "\n")
        _replace(folder, RESULTS / name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        say("")
    return made


def result(folder: Path) -> dict[str, Any]:
    """What a finished run has written."""
    return json.loads((folder / "result.json").read_text())


def _replace(new: Path, old: Path) -> None:
    """Put a finished folder in the place of an earlier one."""
    new.chmod(0o755)
    if old.exists():
        retired = Path(tempfile.mkdtemp(prefix=".retired-", dir=RESULTS))
        old.rename(retired / old.name)
        new.rename(old)
        shutil.rmtree(retired)
    else:
        new.rename(old)


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
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


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
