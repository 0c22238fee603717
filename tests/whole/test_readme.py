"""What the README shows works as it stands there."""

import re
import tomllib

from costmodel import load_cluster
from tests.support import ROOT
from tests.support.row_by_hand import ROW, table

README = (ROOT / "README.md").read_text()
EXTENDING = (ROOT / "docs" / "extending.md").read_text()


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_python_example_runs_and_its_gradients_are_finite():
    import jax.numpy as jnp

    names: dict = {}
    exec(blocks("python")[0], names)
    assert names["answer"].fits
    assert names["by_hardware"].accelerator.peak_16bit_flop_per_s < 0  # a faster chip shortens the step
    assert all(jnp.isfinite(leaf) for leaf in vars(names["by_plan"].schedule).values())


def test_the_other_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(tmp_path, [ROW])
    names: dict = {}
    exec(blocks("python")[1], names)
    assert names["best"].gap == 0
    assert names["predictions"][0].step_s > 0


def test_the_cluster_file_is_read(tmp_path):
    path = tmp_path / "my_cluster.toml"
    path.write_text(blocks("toml", EXTENDING)[0])
    cluster = load_cluster(str(path))
    assert cluster.accelerators == tomllib.loads(blocks("toml", EXTENDING)[0])["accelerators"]
    assert cluster.tiers[1].oversubscription == 2
    assert cluster.stack.matmul_ceiling == 0.8


def test_the_first_two_blocks_install_with_the_tested_versions():
    first, second = blocks("sh")[:2]
    assert all("-c constraints.txt" in block for block in (first, second))
    assert "equipoise plan" in first
    assert "pytest" in second


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), (page.name, target)


def test_files_and_tests_that_pages_name_are_there():
    own = {name for path in (ROOT / "tests").rglob("*.py") for name in (path.stem, *_tests(path.read_text()))}
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        text = page.read_text()
        for path in re.findall(r"`((?:costmodel|optimize|experiments|tests|docs|notebooks|\.ci)/[\w./*-]*)`", text):
            assert list(ROOT.glob(path.rstrip("/"))), (page.name, path)
        assert set(re.findall(r"\btest_\w+", text)) <= own, page.name


def _tests(source: str) -> list[str]:
    return re.findall(r"^def (test_\w+)", source, re.MULTILINE)
