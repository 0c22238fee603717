"""Structure is said by enumerations: an unknown word is refused where the object is made, and JAX sees plain trees."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import pytest

from costmodel.evaluators import prepare
from costmodel.exact import Exact
from costmodel.formulas import cost, counts
from costmodel.formulas.counts import split_shares
from costmodel.inputs import AttentionKernel, Block, Kind, Op, Plan, Position, Role, Saved, Size, Split
from tests.support.builders import cluster, small_decoder

ROWS = (Size(value=8, split=(Split.CONTEXT,)),)
WRONG = [
    (lambda: Op(name="up", kind="matmull", rows=(), columns=()), r'operator "up": `kind` is \'matmull\'; .*\'matmul\''),  # pyright: ignore
    (lambda: Block(name="head", position="end", ops=()), r'block "head": `position` is \'end\'; .*\'last\''),  # pyright: ignore
    (lambda: Size(value=8, split=("tensr",)), r"size: `split` is 'tensr'; expected one of 'context', 'expert'"),  # pyright: ignore
    (lambda: Size(value=8, split="tensor"), "size: `split` is 't'"),  # pyright: ignore
    (lambda: Saved(rows=(), columns=(), role="inner"), "saved tensor: `role` is 'inner'; expected one of 'core'"),  # pyright: ignore
    (lambda: Saved(rows=(), columns=(), attention="flash_9"), "`attention` is 'flash_9'; expected one of '', 'flash'"),  # pyright: ignore
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_an_unknown_word_is_refused_with_what_is_allowed(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_replacing_checks_too():
    op = small_decoder().blocks[1].ops[0]
    with pytest.raises(ValueError, match="`kind`"):
        dataclasses.replace(op, kind="normm")  # pyright: ignore


def test_plain_words_are_the_same_structure():
    by_word = Op(name="a", kind="norm", rows=ROWS, columns=(Size(value=4, split=("tensor",)),))  # pyright: ignore
    by_member = Op(name="a", kind=Kind.NORM, rows=ROWS, columns=(Size(value=4, split=(Split.TENSOR,)),))
    assert by_word == by_member
    structures = [jax.tree.structure(op) for op in (by_word, by_member)]
    assert structures[0] == structures[1]
    assert hash(structures[0]) == hash(structures[1])
    assert Position("layer") is Position.LAYER
    assert [Role("core"), AttentionKernel("")] == [Role.CORE, AttentionKernel.ANY]


def test_jax_rebuilds_workloads_of_placeholders_and_tracers():
    workload, machine, point = prepare(small_decoder(), cluster(), Plan(data=8, tensor=8))
    leaves, structure = jax.tree.flatten(workload)
    assert jax.tree.structure(jax.tree.unflatten(structure, [object()] * len(leaves))) == structure
    assert jax.tree.map(lambda leaf: leaf, workload) == workload

    def step_s(workload):
        return cost(workload, machine, point, Exact(jnp)).step_s

    expected = cost(workload, machine, point, Exact(math)).step_s
    assert jax.jit(step_s)(workload) == pytest.approx(expected, rel=1e-5)
    pairs = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), jax.tree.map(jnp.asarray, workload))
    axes = jax.tree.map(lambda _: 0, workload)
    assert jax.vmap(step_s, in_axes=(axes,))(pairs) == pytest.approx(expected, rel=1e-5)


def test_each_split_has_a_share():
    assert set(split_shares(prepare(small_decoder(), cluster(), Plan(data=8))[2])) == set(Split)


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_is_counted(kind):
    """An operator of no other effect (no parameters, nothing saved) changes the counts of its block."""
    width = (Size(value=16.0),)
    op = Op(name="one", kind=kind, rows=ROWS, inner=width, columns=width, key_values=width, touches_forward=1.0)
    workload, _, point = prepare(small_decoder(), cluster(), Plan(data=8, tensor=8))

    def counted(ops):
        blocks = (Block(name="own", ops=ops, repeats=1.0),)
        return counts(dataclasses.replace(workload, blocks=blocks), point, Exact(math)).blocks[0]

    assert counted((op,)) != counted(())
