"""What comes and goes with the passes: against PyTorch's own tracker of tensors, and by hand."""

import dataclasses
import math
import tomllib

import pytest

from costmodel import load_cluster, load_workload
from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.cost import parts
from costmodel.formulas.memory import allocated_bytes, device_bytes, passing_bytes, peak
from costmodel.inputs import Kind, Position, whole
from costmodel.inputs.plan import Plan
from costmodel.models import decoder
from tests.support import GOLDEN
from tests.support.builders import cluster, small_decoder, small_moe

SEM = Exact(math)
TRACKED = tomllib.loads((GOLDEN / "fsdp_tracker.toml").read_text())
EAGER = tomllib.loads((GOLDEN / "eager_blocks.toml").read_text())
COMPILED = tomllib.loads((GOLDEN / "compiled_block.toml").read_text())


@pytest.mark.parametrize("run", TRACKED["runs"], ids=lambda run: " ".join(map(str, run.values())))
def test_tensors_of_fsdp_are_those_that_pytorch_tracks(run):
    ranks = 8
    batch = run["microbatch"] * run["microbatches"] * ranks
    workload = load_workload("llama3-8b", sequence=run["sequence"], batch=batch)
    where = load_cluster("h100", accelerators=ranks, software="fsdp")
    plan = Plan(data=ranks, zero_stage=3, microbatch=run["microbatch"], recompute=run["recompute"])
    job, machine, point = prepare(workload, where, plan)
    held = parts(job, machine, point, SEM).memory.first
    states_bytes = 2.0 * (held.weights_bytes + held.optimizer_bytes) / 3.0  # of 4 bytes of weights and 8 of Adam's
    hole_bytes = 2.0 * run["microbatch"] * run["sequence"] * 128_256  # left by 16-bit logits: no tensor (software.py)
    held = dataclasses.replace(held, logits_bytes=held.logits_bytes - hole_bytes)
    found = allocated_bytes(held, machine, SEM) - machine.stack.workspace_bytes - states_bytes
    assert found == pytest.approx(1e9 * run["peak_gb"], rel=TRACKED["tolerance"])


@pytest.mark.parametrize("block", COMPILED["blocks"], ids=lambda block: block["recompute"])
def test_a_compiled_block_keeps_what_pytorchs_partitioner_chooses(block):
    """Of what one layer more keeps; the logarithms are 4 bytes for each token and head."""
    hidden, heads, tokens = 512, 4, 384

    def kept_bytes(layers):
        sizes = {"hidden": hidden, "heads": heads, "ffn": 1376, "layers": layers, "vocabulary": 1024}
        workload = decoder(**sizes, sequence=tokens, batch=8, gated=True)
        where = load_cluster("h100", accelerators=8, software="fsdp")
        compiled = dataclasses.replace(where.stack.habits, eager=False)
        where = dataclasses.replace(where, stack=dataclasses.replace(where.stack, habits=compiled))
        plan = Plan(data=8, zero_stage=3, microbatch=1, recompute=block["recompute"])
        return parts(*prepare(workload, where, plan), SEM).memory.first.activations_bytes

    per_unit = (kept_bytes(2) - kept_bytes(1)) / (tokens * hidden)
    logarithms = 0.0 if block["recompute"] == "full" else 4.0 * heads / hidden
    assert per_unit - logarithms == pytest.approx(block["bytes_per_unit"], rel=block["tolerance"])


@pytest.mark.parametrize("block", EAGER["blocks"], ids=lambda block: block["model"])
def test_an_eager_block_keeps_what_autograd_saves(block):
    sizes = {name: value for name, value in block.items() if name not in ("model", "bytes_per_unit")}

    def kept_bytes(layers):
        workload = decoder(**sizes, layers=layers, vocabulary=1024, sequence=1024, batch=8, gated=True)
        where = load_cluster("h100", accelerators=8, software="deepspeed")
        plan = Plan(data=8, zero_stage=0, microbatch=1, recompute="none")
        return parts(*prepare(workload, where, plan), SEM).memory.first.activations_bytes

    per_unit = (kept_bytes(2) - kept_bytes(1)) / (1024 * block["hidden"])
    assert per_unit == pytest.approx(block["bytes_per_unit"], rel=EAGER["tolerance"])


def stage(workload, plan, **stack):
    where = cluster()
    where = dataclasses.replace(where, stack=dataclasses.replace(where.stack, **stack))
    job, machine, point = prepare(workload, where, plan)
    return parts(job, machine, point, SEM).memory.first


def test_the_allocator_keeps_unused_what_the_device_has_left():
    """Half of the smaller of two moments, .1 of weights, gradients and states; less where less is free; what is needed
    is told though it does not fit."""
    where = cluster()
    where = dataclasses.replace(where, stack=dataclasses.replace(where.stack, cached=0.5, fragmentation=0.1))
    held = stage(small_decoder(), Plan(recompute="full"), fragmentation=0.1)
    needed = peak(held, SEM)
    staying = held.weights_bytes + held.gradients_bytes + held.optimizer_bytes
    unused = 0.5 * min(held.logits_bytes, held.working_bytes) + 0.1 * staying
    assert held.gathered_bytes == held.late_bytes == 0 < unused

    def shown(capacity):
        small = dataclasses.replace(where.accelerator, hbm_bytes=capacity)
        return device_bytes(held, dataclasses.replace(where, accelerator=small), SEM)

    assert shown(2 * needed) == pytest.approx(needed + unused, rel=1e-12)
    assert shown(needed + 0.3 * unused) == pytest.approx(needed + 0.3 * unused, rel=1e-12)
    assert shown(0.9 * needed) == needed


def test_gradients_flow_at_the_product_down_by_hand():
    """Its input and its output, in 16 bits; of experts those of all rows that arrive."""
    dense = small_decoder()
    layer = next(block for block in dense.blocks if block.name == "layer")
    (down,) = (op for op in layer.ops if op.name == "ffn down")
    width = down.inner[0].value + down.columns[0].value
    assert stage(dense, Plan()).working_bytes == 2 * dense.sequence * width
    assert stage(dense, Plan(microbatch=2)).working_bytes == 2 * 2 * dense.sequence * width
    experts = small_moe()
    layer = next(block for block in experts.blocks if "expert" in block.name)
    (down,) = (op for op in layer.ops if op.name == "expert down")
    rows = down.rows[0].value * down.groups[0].value
    width = down.inner[0].value + down.columns[0].value
    assert stage(experts, Plan()).working_bytes == pytest.approx(2 * rows * width)


def test_the_loss_and_a_blocks_recomputation_are_not_there_together():
    held = stage(small_decoder(), Plan(recompute="full"), logit_bytes=8.0)
    kept = held.activations_bytes + held.fragmentation_bytes
    assert held.working_bytes > held.logits_bytes > 0
    assert passing_bytes(held, SEM) == kept + held.working_bytes
    more = stage(small_decoder(), Plan(recompute="full"), logit_bytes=800.0)
    assert passing_bytes(more, SEM) == kept + more.logits_bytes > kept + more.working_bytes


def test_gradients_that_are_freed_come_with_the_first_backward_pass():
    """Of one microbatch they take the place of activations; of more they are there when the next one begins."""
    (one, freed), (two, again) = (
        [stage(small_decoder(batch=n), Plan(), early_gradients=early) for early in (1.0, 0.0)] for n in (1, 2)
    )
    assert dataclasses.astuple(two) == dataclasses.astuple(again)
    assert (freed.gradients_bytes, freed.late_bytes) == (0.0, one.gradients_bytes)
    late = freed.held_bytes + max(passing_bytes(freed, SEM), one.gradients_bytes + freed.working_bytes)
    assert peak(freed, SEM) == late < peak(one, SEM)


def test_idle_gradients_are_a_layers_matrices_and_one_expert():
    plain, idle = (stage(small_moe(), Plan(), idle_gradients=n) for n in (0.0, 1.0))

    def elements(block):
        return sum(whole(op.inner) * whole(op.columns) for op in block.ops if op.kind == Kind.MATMUL)

    largest = max(elements(block) for block in small_moe().blocks if block.position == Position.LAYER)
    assert idle.gradients_bytes - plain.gradients_bytes == pytest.approx(2 * largest, rel=1e-9)


def test_under_zero_3_the_heads_weights_are_gathered_for_the_loss():
    """Beside 8 bytes a logit 2 of each weight; or 2 of each logit beside weights and gradient in 16 bits and in 32."""
    workload = small_decoder(batch=8)
    head = next(op for op in workload.blocks[-1].ops if op.name == "logits")
    logits = workload.sequence * head.columns[0].value
    weights = head.inner[0].value * head.columns[0].value
    held = stage(workload, Plan(data=8, zero_stage=3, gradient_dtype="fp32"), logit_bytes=8.0)
    assert held.logits_bytes == pytest.approx(max(8 * logits + 2 * weights, 2 * logits + 8 * weights))


def test_a_compiler_gathers_product_by_product():
    whole, parted = (
        stage(small_decoder(batch=8), Plan(data=8, zero_stage=3), gathered_share=n).gathered_bytes for n in (1.0, 0.25)
    )
    assert parted == pytest.approx(0.25 * whole)
