"""What sources outside the bulk sets print: words of recompute beside the sharding, batches told twice, cards of a node
counted behind their rate. Each row's meaning was written down before the reader saw it.
"""

import pytest

from costmodel.measured.rows.headers.own_columns import meaning
from costmodel.measured.rows.words import between_nodes
from tests.support.row_by_hand import ROW, read

OPEN = ROW | dict.fromkeys(("tp", "pp", "dp", "sp", "vpp", "zero_stage_or_fsdp", "recompute", "flash_attention"), "")
OPEN |= {"hardware": "H100-80GB-SXM", "source": "somebody", "precision": "bf16", "micro_batch": ""}
SMALL = {"gpus": "8", "tp": "1", "pp": "1", "global_batch_sequences": ""}


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"zero_stage_or_fsdp": "FSDP2 + activation checkpointing"}, "recompute", "full"),
        ({"zero_stage_or_fsdp": "FSDP, no AC"}, "recompute", "none"),
        ({"zero_stage_or_fsdp": "FSDP, AC on every 2nd layer"}, "recompute_share", 0.5),
        ({"recompute": "sel."}, "recompute", "selective"),
        ({"zero_stage_or_fsdp": "dist. optimizer"}, "zero_stage", 1),
        ({"zero_stage_or_fsdp": "P_os+g"}, "zero_stage", 2),
        ({"zero_stage_or_fsdp": "MiCS (p=8)"}, "data_shard", 8),
        ({"notes": "layout T4-P2-D8"}, "tensor", 4),
        ({"notes": "layout T4-P2-D8"}, "pipeline", 2),
        ({"notes": "8-way Megatron"}, "tensor", 8),
        ({"notes": "TP 2, pipelining over 4 hosts"}, "pipeline", 4),
        ({"hardware": "V100-32GB", "precision": "fp16"}, "attention", "unfused"),
        ({"hardware": "V100-32GB", "precision": "fp16", "flash_attention": "xformers"}, "attention", "flash_2"),
        ({"notes": "(dp, op, pp) = (4, 4, 4)"}, "tensor", 4),  # Alpa's operators
        ({"notes": "layout [data 8] x [pipe 2] x [tensor 4]"}, "tensor", 4),
        ({"notes": "tensor-parallel world size: 8"}, "tensor", 8),
        ({"notes": "tensor-slicing of 8 within the node"}, "tensor", 8),
        ({"notes": "TP 4 x 16-deep pipeline"}, "pipeline", 16),
        ({"recompute": "0 layers"}, "recompute", "none"),
        ({"notes": "recomputation everywhere"}, "recompute", "full"),
        ({"zero_stage_or_fsdp": "pure DP"}, "zero_stage", 0),
        ({"zero_stage_or_fsdp": "LocalDDP"}, "zero_stage", 0),
        ({"zero_stage_or_fsdp": "FSDP2 (reshard_after_forward=never)"}, "zero_stage", 2),
        ({"zero_stage_or_fsdp": "HSDP 16 x 4 (shard x replicate)"}, "data_shard", 16),
        ({"recompute": "GC"}, "recompute", "full"),
        ({"recompute": "moe layer"}, "recompute", "selective"),
        ({"recompute": "nothing_saveable"}, "recompute", "full"),
        ({"recompute": "everything_saveable"}, "recompute", "none"),
        ({"flash_attention": "PyTorch eager"}, "attention", "unfused"),
        ({"notes": "GPipe with 4 partitions"}, "schedule", "gpipe"),
        ({"notes": "PP 4, schedule ZBVZeroBubble"}, "schedule", "zb_v"),
        ({"notes": "activation_checkpointing: one_in_four"}, "recompute_share", 0.25),  # OLMo's names
        ({"notes": "activation_checkpointing: fine_grained"}, "recompute", "selective"),
        ({"notes": "TP 2, PP 10 interleaved"} | {"gpus": "80"}, "virtual_stages", 2),
        (SMALL | {"notes": "batch size 16, gradient accumulation 8"}, "microbatch", 16),
        (SMALL | {"notes": "bs/GPU 4, GA 2"}, "microbatch", 4),
    ],
)
def test_plans_of_other_sources(changes, field, value):
    assert getattr(read(**OPEN | changes).plan, field) == value


@pytest.mark.parametrize(
    ("cell", "words", "stages"),
    [
        ("FSDP2", "", (3, 1)),  # K: torchtitan's `get_fsdp_reshard_after_forward_policy`
        ("FSDP2 (reshard_after_forward=default)", "", (3, 1)),
        ("FSDP", "reshard_after_forward: default", (3, 1)),
        ("FSDP2 (reshard_after_forward=always)", "", (3, 3)),
        ("FSDP", "weights are resharded after each forward", (3, 3)),
        ("FSDP2 (reshard_after_forward=never)", "", (2, 2)),
        ("FSDP", "weights stay gathered", (2, 2)),
        ("FSDP", "params kept whole after the forward pass", (2, 2)),
    ],
)
def test_when_fsdp_gathers_again_without_a_pipeline_and_under_one(cell, words, stages):
    rows = (
        read(source="torchtitan", tp="1", pp=pp, dp=dp, vpp="", zero_stage_or_fsdp=cell, notes=words)
        for pp, dp in (("1", "64"), ("4", "16"))
    )
    assert tuple(row.plan.zero_stage for row in rows) == stages


@pytest.mark.parametrize(
    ("notes", "batch"),
    [
        ("batch size 16, gradient accumulation 8", 1024),
        ("batch size 512, gradient accumulation 8", 512),  # of a step: eight ranks with eight microbatches of eight
        ("bs/GPU 4, GA 2", 64),
        ("the batch holds 4,194,304 tokens", 2048),
        ("batch of 8 per GPU, 4M tokens a step", 2048),
        ("batch of 8 per GPU; micro-batch of 16384 tokens", 64),
    ],
)
def test_batches_that_are_told_twice(notes, batch):
    assert read(**OPEN | SMALL | {"notes": notes}).workload.batch == batch


@pytest.mark.parametrize(
    ("note", "gbytes"),
    [
        ("200 Gb/s NIC per GH200 module", 25.0),
        ("100 Gb/s EFA x 8 per node", 12.5),
        ("EDR IB, 4 adapters per node", 6.25),
        ("HDR, 2 NICs per node", 6.25),
        ("8x2x200 Gb/s RoCE (16 NICs)", 50.0),
        ("dual 200 Gb/s RoCE per node", 6.25),
        ("2x dual-port HDR100 per node", 6.25),
        ("24x100GbE RoCE per HPU: 21 inside the server, 3 out (scale-out 300 Gb/s per card)", 37.5),
    ],
)
def test_links_of_other_sources(note, gbytes):
    assert between_nodes(note, 8, 37.5e9) == pytest.approx(1e9 * gbytes)


def test_software_of_a_row_in_a_table_of_several():
    row = {"source": "FSDP against DeepSpeed", "zero_stage_or_fsdp": "DeepSpeed ZeRO-3", "flash_attention": ""}
    assert read(**OPEN | row).stack == "deepspeed"


def test_checkpoints_that_go_to_the_host_are_activations():
    facts = read(**OPEN | {"notes": "ZeRO-3; activation checkpointing with CPU offload"}).facts
    assert facts.get("offloaded_activations") == 1.0
    assert not facts.get("host_optimizer")


def test_slices_that_only_the_notes_tell():
    row = {"hardware": "TPU v4", "gpus": "6144", "gpus_per_node": "4", "interconnect_note": "", "notes": "2 pods"}
    assert read(**OPEN | row | {"global_batch_sequences": "6144"}).fabric == "datacentre"


@pytest.mark.parametrize(
    ("name", "column"),
    [("Recomp.", "recompute"), ("tensor_mp", "tp"), ("pipeline_mp", "pp"), ("dt_ms", "measured_step_s")]
    + [("Optimizer sharding", "zero_stage_or_fsdp"), ("L_seq", "seq"), ("B_global", "global_batch_sequences")]
    + [("b_micro", "micro_batch"), ("t_step (s)", "measured_step_s"), ("card", "hardware")],
)
def test_columns_of_other_tables(name, column):
    meant = meaning(name)
    assert meant is not None
    assert meant.columns == (column,)


def test_accelerators_that_are_not_used_do_not_count():
    plan = read(**OPEN | {"gpus": "300", "notes": "288 of 300 GPUs used, TP 8"}).plan
    assert (plan.accelerators, plan.data) == (288, 36)


@pytest.mark.parametrize("cell", ["not stated", "not printed", "n/s", "unspecified", "auto", "varies"])
@pytest.mark.parametrize("column", ["recompute", "tp", "micro_batch", "precision"])
def test_cells_that_leave_it_open(cell, column):
    assert read(**OPEN | {column: cell}).plan == read(**OPEN | {column: ""}).plan
