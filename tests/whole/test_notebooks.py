"""Every notebook runs from start to end in a fresh directory, is stored with its outputs, and holds no cost formula."""

import ast
import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from nbformat import NotebookNode

from tests.support.notebooks import NOTEBOOKS, executed, read

REQUIRED = {
    "first_steps",
    "loss_in_your_code",
    "choose_a_plan",
    "design_a_cluster",
    "calibrate_to_your_machines",
    "time_to_target",
    "flexible_plans",
}
LARGEST_IMAGE_BYTES = 300_000
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Pow, ast.MatMult)

notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_all_are_there():
    assert {path.stem for path in NOTEBOOKS} >= REQUIRED


@notebooks
def test_stored_with_outputs(path: Path):
    """As they were when it ran from start to end: `python -m tests.support.notebooks` does so."""
    cells = _code(read(path))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert all(output.output_type != "error" and output.get("name") != "stderr" for output in outputs)
    images = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert images
    assert all(len(base64.b64decode(image)) < LARGEST_IMAGE_BYTES for image in images)


@notebooks
def test_ends_in_asserts(path: Path):
    last = ast.parse(_code(read(path))[-1].source)
    assert last.body
    assert all(isinstance(statement, ast.Assert) for statement in last.body)


@notebooks
def test_holds_no_cost_formula(path: Path):
    for cell in _code(read(path)):
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
def test_runs(path: Path, tmp_path: Path):
    notebook = executed(path, tmp_path)  # raises where a cell does
    assert list(tmp_path.iterdir()) == []
    outputs = [output for cell in _code(notebook) for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
