"""Executes the notebooks and stores them with their outputs, so that a reader of the repository sees them.

usage: python -m tests.support.notebooks [NAME ...]     # all without a name; after anything that changes answers
"""

import contextlib
import json
import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

import costmodel
from tests.support import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.ipynb"))
KERNEL = "equipoise-tests"


def read(path: Path) -> NotebookNode:
    """A notebook as it is stored."""
    return nbformat.read(path, as_version=4)


def executed(path: Path, directory: Path) -> NotebookNode:
    """The notebook after it has run from start to end in a directory; raises where a cell does."""
    notebook = read(path)
    where = {"metadata": {"path": str(directory)}}
    with _kernel_of_this_python():
        NotebookClient(notebook, kernel_name=KERNEL, timeout=300, resources=where, record_timing=False).execute()
    return notebook


@contextlib.contextmanager
def _kernel_of_this_python() -> Iterator[None]:
    """A kernel of the running interpreter, which imports the same package, whatever is installed as `python3`."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory) / "kernels" / KERNEL
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        kernel = {"argv": command, "display_name": KERNEL, "language": "python"}
        (folder / "kernel.json").write_text(json.dumps(kernel))
        inherited = os.environ.get("PYTHONPATH")
        paths = [str(Path(costmodel.__file__).parents[1]), *([inherited] if inherited else [])]
        with mock.patch.dict(os.environ, JUPYTER_PATH=directory, PYTHONPATH=os.pathsep.join(paths)):
            yield


def store(path: Path) -> None:
    """Execute and write; what the kernel is called stays as it was."""
    before = read(path)
    with tempfile.TemporaryDirectory() as directory:
        after = executed(path, Path(directory))
    after.metadata = before.metadata
    for cell in after.cells:
        if cell.cell_type == "code":
            cell.outputs = _plainer(cell.outputs)
    nbformat.write(after, path)


def _plainer(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """What was printed in one go is one output, however busy the machine was; beside HTML the text is a few words."""
    kept: list[NotebookNode] = []
    for output in outputs:
        if kept and output.output_type == kept[-1].output_type == "stream" and output.name == kept[-1].name:
            kept[-1].text += output.text
            continue
        if "text/html" in output.get("data", {}):
            output.data["text/plain"] = textwrap.shorten(output.data["text/plain"], 60)
        kept.append(output)
    return kept


if __name__ == "__main__":
    for each in NOTEBOOKS:
        if not sys.argv[1:] or each.stem in sys.argv[1:]:
            print(each.stem, file=sys.stderr, flush=True)
            store(each)
