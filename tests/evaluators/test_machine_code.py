"""Programs of gradients that are kept in the user's cache: what they depend on, and that nothing unsafe is loaded."""

import dataclasses
import functools
import pickle
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from costmodel.evaluators import compiled, machine_code
from costmodel.formulas import COLLECTIVES
from experiments.speed.subject import Pool, cast, subject

STEP, HARDWARE = (functools.partial(compiled.gradient_program, ("tensor",), "step_s", some) for some in (False, True))


def line():
    """A program that is small."""
    return lambda sizes, at: {"y": sizes[0] * at[0] + sizes[1]}


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Arguments, and the orders that another process would get, which fails."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    orders: list[tuple[str, str]] = []
    monkeypatch.setattr(machine_code, "_compiled_apart", lambda path, _, way: orders.append((path.stem, way)))
    workload, cluster = (cast(compiled.anonymous(tree)) for tree in subject())
    return (workload, cluster, Pool(8).batch(16)), orders


def kept(make, trees):
    shapes = tuple(machine_code.packed(tree)[2] or () for tree in trees)
    return machine_code._kept(make, trees, shapes, 0.0)


def test_numbers_of_one_shape_are_one_array_and_come_back(asked):
    (workload, cluster, point), _ = asked
    for tree, lengths in ((workload, {1}), (point, {2}), ((cluster, point), {1, 2})):
        arrays, structure, shapes = machine_code.packed(tree)
        assert {array.ndim for array in arrays} == lengths
        assert shapes is not None
        back = jax.tree.unflatten(structure, machine_code._unpacked(arrays, shapes))
        jax.tree.map(np.testing.assert_array_equal, back, tree)
    assert machine_code.packed(jax.device_put(point))[2] == machine_code.packed(point)[2]

    def other(x):
        return machine_code.packed(dataclasses.replace(point, tensor=x))[2]

    assert other(1.0) is other(np.float64(1.0)) is None
    traced = []
    jax.make_jaxpr(lambda x: traced.append(other(x)) or x)(point.tensor)
    assert traced == [None]


def test_another_structure_length_program_or_source_is_another_file(asked, monkeypatch):
    trees, orders = asked
    for make, given in ((STEP, trees), (STEP, trees), (STEP, (*trees[:2], Pool(8).batch(17))), (HARDWARE, trees)):
        assert kept(make, given) is None
    monkeypatch.setattr(machine_code, "_source", lambda package: "other")
    assert kept(STEP, trees) is None
    names, ways = zip(*((name.removesuffix(f".{way}"), way) for name, way in orders), strict=True)
    assert ways == ("loops", "fused") * 5  # the second where the first fails
    assert names[0] == names[2]
    assert len(set(names)) == 4


def test_where_files_are_not_safe_or_code_is_a_users_nothing_is_kept(asked, tmp_path, monkeypatch):
    trees, orders = asked
    with monkeypatch.context() as own:
        own.setitem(COLLECTIVES["all_reduce"], "own", lambda *_: None)
        assert kept(STEP, trees) is None
    (tmp_path / "equipoise" / "programs").chmod(0o777)
    assert kept(STEP, trees) is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert kept(STEP, trees) is None
    assert orders == []


def test_another_process_compiles_and_the_file_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    trees = (np.float32(2.0), np.float32(1.0)), (np.arange(4, dtype=np.float32),)
    arrays, result = [machine_code.packed(tree)[0] for tree in trees], {"y": 0.0}
    for _ in range(2):
        found = machine_code.stored(line, trees, result)
        assert isinstance(found, jax.stages.Compiled)
        assert found(*arrays)["y"].tolist() == [1.0, 3.0, 5.0, 7.0]
        monkeypatch.setattr(machine_code, "_compiled_apart", None)  # it is there
    (file,) = (tmp_path / "equipoise" / "programs").glob("*.bin")
    file.write_bytes(b"broken")
    monkeypatch.setattr(machine_code, "_compiled_apart", lambda *_: False)
    for _ in range(2):  # compiled here
        assert machine_code.stored(line, trees, result)(*arrays)["y"].tolist() == [1.0, 3.0, 5.0, 7.0]
        assert not file.exists()


SMALL = ((np.float32(2.0), np.float32(1.0)), (np.float32(3.0),))


@pytest.mark.parametrize(("ended", "tries"), [(machine_code._LATE, 3), (-9, 3), (1, 1), (-6, 1), (None, 5)])
def test_what_failed_by_chance_is_tried_again(ended, tries, tmp_path, monkeypatch):
    """By the next processes, a few times; the slower way that was there is not kept for good."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine_code, "_loaded", lambda path, *_: path.suffixes[0])
    asked, fails = [], ["loops"]

    def of_another(order, way):
        asked.append(way)
        if way in fails:
            return ended
        Path(pickle.loads(order)[-1]).touch()
        return 0

    monkeypatch.setattr(machine_code, "_status_of_another", of_another)
    assert [kept(line, SMALL) for _ in range(5)] == [".fused"] * 5
    assert (asked.count("loops"), asked.count("fused")) == (tries, 1)
    fails.clear()
    assert kept(line, SMALL) == (".loops" if tries == 5 else ".fused")  # nobody counts where no process starts


OTHER_JAXLIB = """
from costmodel.evaluators.loop_text import LoopText
written = LoopText.of
LoopText.of = lambda *asked: written(*asked).replace("mhlo.fusion", "mhlo.fusion_of_another_release")
"""


def test_another_jaxlib_without_such_fusions_has_the_next_way(tmp_path, monkeypatch):
    """Its own parser refuses them: tried once, told to nobody, and the numbers are the same."""
    (tmp_path / "sitecustomize.py").write_text(OTHER_JAXLIB)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine_code, "version", lambda package: "0.99.0")
    found = machine_code.stored(line, SMALL, {"y": 0.0})
    assert isinstance(found, jax.stages.Compiled)
    assert found([np.array([2, 1], np.float32)], [np.array([3], np.float32)])["y"] == 7
    files = sorted(file.name.partition(".")[2] for file in (tmp_path / "equipoise" / "programs").iterdir())
    assert files == ["fused.bin", "loops.tries"]


@pytest.mark.parametrize("python", ["/bin/false", "/nowhere", None, "hangs"])
def test_where_no_other_process_compiles_it_is_compiled_here(python, tmp_path, monkeypatch):
    hangs = tmp_path / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 60\n")
    hangs.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine_code, "MOST_S", 0.1)
    monkeypatch.setattr(sys, "executable", str(hangs) if python == "hangs" else python)
    found = machine_code.stored(line, ((np.float32(2.0), np.float32(1.0)), (np.float32(3.0),)), {"y": 0.0})
    assert found([np.array([2, 1], np.float32)], [np.array([3], np.float32)])["y"] == 7
    for running in machine_code._COMPILING:
        running.wait(10)  # an error where it still runs
