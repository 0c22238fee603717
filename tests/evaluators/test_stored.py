"""Programs of gradients that are kept in the user's cache: what they depend on, and that nothing unsafe is loaded."""

import dataclasses

import jax
import numpy as np
import pytest

from costmodel.evaluators import compiled, stored
from costmodel.formulas import COLLECTIVES
from experiments.speed.subject import Pool, cast, subject

ROLE = (("tensor",), "step_s", False)


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Arguments, and the orders that another process would get, which fails."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    orders: list[str] = []
    monkeypatch.setattr(stored, "_compiled_apart", lambda path, _: orders.append(path.name))
    workload, cluster = (cast(compiled.anonymous(tree)) for tree in subject())
    return ((workload, cluster), Pool(8).batch(16)), orders


def test_numbers_of_one_shape_are_one_array_and_come_back(asked):
    (fixed, point), _ = asked
    for tree, lengths in ((fixed, {1}), (point, {2}), ((fixed, point), {1, 2})):
        arrays, structure, shapes = stored.packed(tree)
        assert {array.ndim for array in arrays} == lengths
        assert shapes is not None
        back = jax.tree.unflatten(structure, stored._unpacked(arrays, shapes))
        jax.tree.map(np.testing.assert_array_equal, back, tree)
    assert stored.packed(jax.device_put(point))[2] == stored.packed(point)[2]
    for other in (1.0, np.float64(1.0)):
        assert stored.packed(dataclasses.replace(point, tensor=other))[2] is None
    traced = []
    jax.make_jaxpr(lambda x: traced.append(stored.packed(dataclasses.replace(point, tensor=x))[2]) or x)(point.tensor)
    assert traced == [None]


def test_another_structure_length_role_or_source_is_another_program(asked, monkeypatch):
    (fixed, point), orders = asked
    tree = (fixed, point)
    for role, trees in ((ROLE, tree), (ROLE, tree), (ROLE, (fixed, Pool(8).batch(17))), ((*ROLE[:2], True), tree)):
        assert stored.stored(role, trees, 0.0) is None
    monkeypatch.setattr(stored, "_sources", lambda: "other")
    assert stored.stored(ROLE, tree, 0.0) is None
    assert orders[0] == orders[1]
    assert len(set(orders)) == len(orders) - 1 == 4


def test_where_files_are_not_safe_or_code_is_a_users_nothing_is_kept(asked, tmp_path, monkeypatch):
    trees, orders = asked
    monkeypatch.setitem(COLLECTIVES["all_reduce"], "own", lambda *_: None)
    assert stored.stored(ROLE, trees, 0.0) is None
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "equipoise" / "programs").chmod(0o777)
    assert stored.stored(ROLE, trees, 0.0) is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert stored.stored(ROLE, trees, 0.0) is None
    assert orders == []


def test_a_broken_file_is_removed(tmp_path):
    broken = tmp_path / "broken.bin"
    broken.write_bytes(b"nothing")
    assert stored._loaded(broken, jax.tree.structure(((), {})), None) is None
    assert not broken.exists()
