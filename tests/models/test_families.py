"""Builders of every family against models traced in JAX, and frozen weights, adapters and recycling."""

import math

import numpy as np
import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.exact import Exact
from costmodel.formulas.counts import counts
from costmodel.inputs import Kind, Position
from costmodel.inputs.embedding import embed
from costmodel.inputs.plan import Plan
from costmodel.inputs.workload import model_flop, parameters
from costmodel.models.decoder import decoder
from costmodel.models.dlrm import dlrm
from costmodel.models.encoder import encoder
from costmodel.models.encoder_decoder import encoder_decoder
from costmodel.models.evoformer import evoformer
from costmodel.models.moe import moe_decoder
from costmodel.models.swin import swin
from costmodel.pytree import as_floats
from costmodel.semantics import total
from costmodel.specs.loading import load_cluster
from costmodel.specs.workloads import load_workload
from tests.oracles import evoformer as evoformer_oracle
from tests.oracles import families as oracle

SEM = Exact(math)


def test_encoder_against_a_traced_one():
    sizes = {"layers": 2, "hidden": 48, "heads": 4, "vocabulary": 100}
    built = encoder(**sizes, ffn=96, sequence=16, positions=20, batch=1)
    assert (parameters(built), model_flop(built)) == oracle.bert(**sizes, ffn_size=96, positions=20, tokens=16)


@pytest.mark.parametrize(("source", "target"), [(16, 16), (24, 8)])
def test_encoder_decoder_against_a_traced_one(source, target):
    sizes = {"layers": 2, "hidden": 48, "heads": 4, "head_size": 8, "vocabulary": 100}
    built = encoder_decoder(
        **sizes, decoder_layers=3, ffn=96, sequence=source, decoder_sequence=target, batch=1, bias=True,
        layer_norm=True, embedding_norm=True, learned_positions=True, causal_density=1.0,
    )  # fmt: skip
    traced = oracle.sequence_to_sequence(**sizes, down=3, ffn_size=96, source=source, target=target)
    assert (parameters(built), model_flop(built)) == traced


def test_swin_against_a_traced_one():
    sizes = {"depths": (1, 2, 2), "hidden": 24, "heads": (2, 4, 8), "image": 64, "window": (4, 4, 2), "classes": 10}
    built = swin(**sizes, batch=1)
    count, flop = oracle.swin(**sizes, patch=4)
    assert parameters(built) == count
    pixels = 2 * 16**2 * 48 * 24  # no gradient reaches the image
    assert model_flop(built) - pixels == flop


def test_swin_tiny_is_the_published_one():
    """28,288,354 parameters and 4.5 billion multiply-adds (arXiv 2103.14030 table 1 and its code)."""
    tiny = swin(depths=(2, 2, 6, 2), hidden=96, heads=(3, 6, 12, 24), image=224, window=(7,) * 4, batch=1)
    assert parameters(tiny) == 28_288_354
    assert f"{model_flop(tiny) / 6 / 1e9:.1f}" == "4.5"


@pytest.mark.parametrize("s", [8, 12])
def test_evoformer_against_a_traced_one(s):
    built = evoformer(
        layers=2, sequences=s, residues=10, batch=1, hidden=32, pair_hidden=16, heads=4, pair_heads=2, outer_size=6,
        extra_layers=1, extra_sequences=20, extra_hidden=8,
    )  # fmt: skip
    traced = evoformer_oracle.evoformer(2, 1, s, 20, 10, c_m=32, c_e=8, c_z=16, heads=4, pair_heads=2, c=6)
    assert (parameters(built), model_flop(built)) == traced


def test_dlrm_against_a_traced_one():
    sizes = {"tables": (50, 20, 7), "hidden": 16, "dense_features": 5, "bottom": (24, 16), "top": (32, 8, 1)}
    built = dlrm(**sizes, batch=64)
    count, flop = oracle.dlrm(**sizes)
    assert parameters(built) == count
    assert model_flop(built) - 2 * 5 * 24 == flop  # no gradient reaches the dense features

    kept = {
        op.name: sum(size.value for saved in op.saved for size in saved.columns) for b in built.blocks for op in b.ops
    }
    assert kept["interaction"] == (3 + 1) * 16  # all features: the sums of three tables, and the dense ones


def test_what_crosses_a_stage_boundary_is_the_mean_over_layers():
    """By hand: Swin halves it at each stage; a decoder's layers carry the encoder's output too; both of Evoformer's."""
    tiny = swin(depths=(2, 2, 6, 2), hidden=96, heads=(3, 6, 12, 24), image=224, window=(7,) * 4, batch=1)
    assert tiny.hidden == (2 * 96 + 2 * 48 + 6 * 24 + 2 * 12) / 12
    sizes = {"hidden": 64, "heads": 4, "ffn": 128, "vocabulary": 100, "batch": 4}
    assert encoder_decoder(layers=3, sequence=32, **sizes).hidden == (3 * 64 + 3 * 2 * 64) / 6
    long = encoder_decoder(layers=2, decoder_layers=6, sequence=32, decoder_sequence=16, **sizes)
    assert long.hidden == (2 * 64 + 6 * 1.5 * 64) / 8
    pairs = evoformer(layers=1, sequences=8, residues=10, batch=1, hidden=32, pair_hidden=16)
    assert pairs.hidden == 8 * 32 + 10 * 16
    gates = next(op for block in pairs.blocks for op in block.ops if op.name == "triangle outgoing gates")
    widths = gates.columns[0].value, gates.saved[0].columns[0].value
    assert widths == (2 * 16, 4 * 16)  # two sides, and a gate for each (Jumper et al. 2021, algorithm 11)
    matrices = {op.name: op.matrices for block in pairs.blocks for op in block.ops if op.kind == Kind.MATMUL}
    assert (matrices["msa row qkv"], matrices["outer product in"], matrices["outer product out"]) == (3, 2, 1)


def test_norms_of_heads_are_parameters_alone():
    """They are fused with the rotation: nothing passes through memory for them."""
    sizes = {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 100, "sequence": 32, "batch": 4}
    pair = [
        moe_decoder(**sizes, experts=4, top_k=2, expert_ffn=32, head_size=16, query_key_norm=on) for on in (False, True)
    ]
    assert parameters(pair[1]) - parameters(pair[0]) == 2 * 2 * 16
    moved = [[b.memories for b in counts(as_floats(w), embed(Plan(), w, 8.0), SEM).blocks] for w in pair]
    sums = [sum(m.forward_bytes + m.backward_bytes for block in each for m in block) for each in moved]
    assert sums[0] == sums[1]


FAMILIES = ["bert-base", "mbart-large", "swin-1.8b", "alphafold2-128x256", "dlrm-criteo"]


SPLITS = [
    (name, context) for name in FAMILIES for context in (1, 2) if (name, context) != ("dlrm-criteo", 2)
]  # one token


@pytest.mark.parametrize(("name", "context"), SPLITS)
def test_every_rank_does_its_share_of_the_flop(name, context):
    built = load_workload(name, batch=32)
    plan = Plan(context=context, data=4, microbatch=2)
    counted = counts(as_floats(built), embed(plan, built, 8.0), SEM)
    forward = total(
        b.repeats * (b.forwards + 2) * total(op.flop for op in b.matmuls + b.attentions) for b in counted.blocks
    )
    done = forward * counted.microbatches * plan.context * plan.data
    np.testing.assert_allclose(done, built.batch * model_flop(built), rtol=2e-6 if name.startswith("swin") else 1e-12)


@pytest.mark.parametrize("name", FAMILIES[:3])
def test_tensor_ranks_hold_all_matrices_together(name):
    built = load_workload(name)
    halves = [counts(as_floats(built), embed(Plan(tensor=t), built, 8.0), SEM) for t in (1, 2)]
    for one, two in zip(halves[0].blocks, halves[1].blocks, strict=True):
        if one.position == Position.LAYER and "entry" not in one.name:
            np.testing.assert_allclose(one.matrix_parameters, 2 * two.matrix_parameters)


def test_a_parallel_block_has_one_norm_one_sync_and_one_residual():
    sizes = {"layers": 1, "hidden": 64, "heads": 4, "ffn": 256, "vocabulary": 100, "sequence": 16, "batch": 1}
    after, beside = (decoder(**sizes, gated=True, parallel_block=flag) for flag in (False, True))
    dropped = {op.name for op in after.blocks[1].ops} - {op.name for op in beside.blocks[1].ops}
    assert dropped == {"ffn norm", "attention sync", "attention residual"}
    assert parameters(after) - parameters(beside) == 64
    assert model_flop(after) == model_flop(beside)


@pytest.mark.parametrize("name", [*FAMILIES, "t5-46.4b"])
def test_every_family_is_evaluated_whole(name):
    """Parts add up, more accelerators are not slower, and every term has a time."""
    built = load_workload(name)
    pipeline = {"alphafold2-128x256": 4, "dlrm-criteo": 1}.get(name, 4)
    plan = {"data": 8, "pipeline": pipeline, "recompute": "full", "zero_stage": 1}
    steps = [
        evaluate(built, load_cluster("a100-80gb", scale * 8 * pipeline), Plan(**plan | {"data": scale * 8}))
        for scale in (1, 2)
    ]
    assert steps[1].step_s < steps[0].step_s
    for step in steps:
        assert all(term.exposed_s >= -1e-12 * step.step_s for term in step.terms)  # but for rounding
        assert all(value >= 0 for value in vars(step.memory.first).values())
        assert 0 < step.mfu < 1


def test_a_stage_boundary_of_the_evoformer_carries_both_activations():
    """32, 80 and 132 MiB in 16 bits (papers_plans_and_ist.md, iii)."""
    for name, mib in (("alphafold2-128x256", 32), ("alphafold2-512x256", 80), ("alphafold2-512x384", 132)):
        built = load_workload(name)
        assert built.hidden * built.sequence * 2 == mib * 2**20
