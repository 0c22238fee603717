"""Every notebook runs from start to end in a fresh directory, is stored with its pictures or none, and holds no cost
formula."""

import ast
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

import costmodel
from tests.support import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.ipynb"))
KERNEL = "equipoise-tests"
REQUIRED = {
    "first_steps",
    "loss_in_your_code",
    "choose_a_plan",
    "design_a_cluster",
    "calibrate_to_your_machines",
    "time_to_target",
}
SHOWN = {"time_to_target"}  # stored with what they print and draw
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Pow, ast.MatMult)

notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def _read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_all_are_there():
    assert {path.stem for path in NOTEBOOKS} >= REQUIRED


@notebooks
def test_stored_with_all_outputs_or_none(path: Path):
    cells = _code(_read(path))
    if path.stem in SHOWN:
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
        assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
        return
    for cell in cells:
        assert cell.outputs == []
        assert cell.execution_count is None


@notebooks
def test_ends_in_asserts(path: Path):
    last = ast.parse(_code(_read(path))[-1].source)
    assert last.body
    assert all(isinstance(statement, ast.Assert) for statement in last.body)


@notebooks
def test_holds_no_cost_formula(path: Path):
    for cell in _code(_read(path)):
        assert list(_formulas(cell.source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "def step(flop, rate): return flop / rate",
        "seconds = work.model_flop / 1e15",
        "seconds = payload / tier.bandwidth_bytes_per_s",
        "seconds = tier.latency_s + payload_bytes / speed",
        "total = 6 * parameters * tokens_per_s",
        "total = 6 * parameters(workload) * tokens",
        "seconds += (n - 1) * latency_s",
    ],
)
def test_formulas_are_seen(source: str):
    assert list(_formulas(source))


@pytest.mark.parametrize(
    "source",
    ["fast = 2 * tier.bandwidth_bytes_per_s", "share = found.step_s / limit_s", "n = parameters(workload) / 1e9"],
)
def test_changes_and_ratios_are_no_formulas(source: str):
    assert not list(_formulas(source))


def _formulas(source: str) -> Iterator[str]:
    """Arithmetic that belongs into the package: on FLOP, or that joins a quantity of hardware or model with another."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
            sides = _names(node.left), _names(node.right)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ARITHMETIC):
            sides = _names(node.target), _names(node.value)
        else:
            continue
        joined = sides[0] and sides[1] and any(map(_is_hardware_or_size, sides[0] | sides[1]))
        if joined or any("flop" in name for name in sides[0] | sides[1]):
            yield ast.unparse(node)


def _names(expression: ast.expr) -> set[str]:
    """Names of the values that stand in an expression: the last part of a path, and functions that are called."""
    inner = {id(node.value) for node in ast.walk(expression) if isinstance(node, ast.Attribute)}
    found = (
        node for node in ast.walk(expression) if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner
    )
    return {node.attr if isinstance(node, ast.Attribute) else node.id for node in found}


def _is_hardware_or_size(name: str) -> bool:
    return name.endswith(("_per_s", "latency_s", "payload_bytes", "kernel_s", "collective_s")) or name == "parameters"


@pytest.mark.slow
@notebooks
def test_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _install_kernel_of_this_python(tmp_path / "jupyter")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("PYTHONPATH", _search_path())
    directory = tmp_path / "work"
    directory.mkdir()
    notebook = _read(path)
    where = {"metadata": {"path": str(directory)}}
    NotebookClient(notebook, kernel_name=KERNEL, timeout=300, resources=where).execute()  # raises where a cell does
    assert list(directory.iterdir()) == []
    outputs = [output for cell in _code(notebook) for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)


def _search_path() -> str:
    """The kernel imports the same package as these tests."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(Path(costmodel.__file__).parents[1]), *([inherited] if inherited else [])])


def _install_kernel_of_this_python(directory: Path) -> None:
    """A kernel of the running interpreter, whatever the one that is installed as `python3` runs."""
    folder = directory / "kernels" / KERNEL
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel = {"argv": command, "display_name": KERNEL, "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(kernel))
