"""Ordinary notes and cells that new patterns once took for something else."""

import pytest

from costmodel.inputs import layers
from costmodel.measured.rows import Unreadable, case
from costmodel.measured.rows.headers.own_columns import meaning
from costmodel.measured.rows.notes import facts_of
from costmodel.measured.rows.words import between_nodes
from tests.support.row_by_hand import ROW, read

OPEN = ROW | dict.fromkeys(("tp", "cp", "pp", "dp", "vpp", "zero_stage_or_fsdp", "recompute", "micro_batch"), "")
OPEN |= {"hardware": "H100-80GB-SXM", "source": "somebody", "precision": "", "gpus": "64"}


@pytest.mark.parametrize(
    "notes",
    ["InfiniBand 400 Gbs", "8 x 400 Gbs NICs", "400 GBs", "400 gbs infiniband", "model size 70 billion"]
    + ["model size 7 B"]
    + ["tensor size 4096", "data size 100 GB", "TP across 2 nodes", "model parallel across 2 nodes"]
    + ["experts distributed over 8 nodes", "2D/3D parallelism", "trained on 1T-2T tokens", "ZeRO 3 stage with 1F1B"],
)  # fmt: skip
def test_rates_sizes_and_nodes_are_no_degrees_and_no_batches(notes):
    numbers = {"global_batch", "batch", "local_batch", "tensor", "data", "expert", "pipeline"}
    assert not numbers & set(facts_of(OPEN | {"notes": notes})), notes


@pytest.mark.parametrize(
    ("notes", "name", "size"),
    [("512 GBS", "global_batch", 512), ("512 gbs", "global_batch", 512), ("TP across 8 GPUs", "tensor", 8)]
    + [("experts spread over 8 ranks", "expert", 8), ("2p-4t", "tensor", 4)]
    + [("larger than usual batch of 512", "batch", 512)]
    + [("more than 60% MFU with TP 8", "tensor", 8), ("in less than 3 days with TP 8", "tensor", 8)],
)  # fmt: skip
def test_what_stands_beside_them_is(notes, name, size):
    assert facts_of(OPEN | {"notes": notes}).get(name) == size


@pytest.mark.parametrize("notes", ["offload of checkpoints to disk", "async checkpoint offload to CPU"])
def test_what_is_written_away_is_no_activation(notes):
    assert not facts_of(OPEN | {"notes": notes}).get("offloaded_activations"), notes


@pytest.mark.parametrize("notes", ["int8 optimized kernels", "optimizations: 8-bit communication", "8-bit matmuls"])
def test_optimized_products_are_no_optimizer(notes):
    assert read(**OPEN | {"notes": notes}).plan.optimizer == "adam"


def test_a_quantity_behind_than_is_no_other_run():
    assert read(**OPEN | {"notes": "less than 80 GB of memory with full recompute"}).plan.recompute == "full"


@pytest.mark.parametrize(
    "notes",
    ["decode throughput of the pretrained model", "forward pass only timing, no backward"]
    + ["MLPerf inference, tuned weights"]
    + ["inference throughput of the trained checkpoint", "inference throughput, no training", "vLLM; without training"]
    + ["prefill latency; optimizer not run", "inference latency of a fine-tuned 7B model"],
)  # fmt: skip
def test_models_that_were_trained_before_are_not_trained(notes):
    found = case(OPEN | {"notes": notes})
    assert isinstance(found, Unreadable), notes
    assert "nothing is trained" in found.reason


@pytest.mark.parametrize(
    "notes", ["trained on 64 GPUs, vLLM serves it", "pretraining; inference throughput is elsewhere"]
)
def test_models_that_are_trained_and_served_are(notes):
    assert not isinstance(case(OPEN | {"notes": notes}), Unreadable)


@pytest.mark.parametrize(
    ("cells", "batch"),
    [({"global_batch_sequences": "512 x 2048", "seq": "2048"}, 512), ({"global_batch_sequences": "16 x 8"}, 128)],
)
def test_a_product_with_the_sequence_is_of_tokens(cells, batch):
    assert read(**OPEN | cells).workload.batch == batch


@pytest.mark.parametrize("accumulated", ["x 2 accum", "(2 gradient accumulation steps)", "; 2 accumulation steps"])
def test_a_batch_of_a_rank_is_accumulated(accumulated):
    found = read(**OPEN | {"global_batch_sequences": f"4 per device {accumulated}"})
    assert found.workload.batch == 2 * 4 * found.plan.data


@pytest.mark.parametrize(("name", "cell"), [("gpus", "8/node"), ("seq", "8192/gpu"), ("gpus", "2x DGX Station")])
def test_a_size_of_a_part_is_not_that_of_all(name, cell):
    found = case(OPEN | {name: cell})
    assert isinstance(found, Unreadable)
    assert name in found.reason


@pytest.mark.parametrize(("cell", "accelerators"), [("2 DGX Spark", 2), ("2x DGX-2", 32), ("4x DGX A100", 32)])
def test_boxes_hold_what_theirs_hold(cell, accelerators):
    assert read(**OPEN | {"gpus": cell}).cluster.accelerators == accelerators


@pytest.mark.parametrize(
    "notes",
    ["recompute: full, 10 layers", "block recompute, 8 layers", "hidden size 4096", "2 layers per virtual stage"]
    + ["32 layers, hidden size 4096, 32 heads"],
)
def test_a_known_model_keeps_its_sizes_beside_numbers_of_a_part(notes):
    named = OPEN | dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "gated_ffn", "params_B"), "")
    named |= {"model": "Mixtral-8x7B", "source": "Megatron-LM", "tp": "2", "pp": "4"}
    assert read(**named | {"notes": notes}).workload == read(**named | {"notes": ""}).workload


@pytest.mark.parametrize(
    ("notes", "field"),
    [(notes, "master_weights") for notes in ("bf16: true", "bf16=True", "fp16: True")]
    + [(notes, "zero_stage") for notes in ("stage 2", "stage 1 of pretraining at 4k, stage 2 at 32k", "stage=1")]
    + [("dcn_data_parallelism=2", "tensor"), ("ici_data_parallelism 2, fsdp", "data")]
    + [("data 2, fsdp 16, tensor 2", "pipeline")],
)
def test_settings_of_one_thing_are_none_of_another(notes, field):
    assert getattr(read(**OPEN | {"notes": notes}).plan, field) == getattr(read(**OPEN | {"notes": ""}).plan, field)


def test_microbatches_of_a_size_keep_their_number():
    found = read(**OPEN | {"tp": "1", "pp": "1", "global_batch_sequences": "", "notes": "32 microbatches of 2"})
    assert (found.plan.microbatch, int(found.workload.batch)) == (2, 64 * 64)


@pytest.mark.parametrize("notes", ["2 layers only", "2-layer proxy", "truncated to 2 layers"])
def test_a_known_model_is_shortened_where_words_say_so(notes):
    named = {"model": "Llama-3-8B", "layers": ""}
    assert layers(read(**OPEN | named | {"notes": notes}).workload) == 2


@pytest.mark.parametrize("notes", ["our rows use TP 4", "the rows use TP 4", "The bars show TP 4", "all rows: TP 4"])
def test_the_tables_own_rows_are_the_rows(notes):
    assert read(**OPEN | {"notes": notes}).plan.tensor == 4


def test_so_many_layers_are_computed_again():
    plan = read(**OPEN | {"tp": "1", "pp": "1", "notes": "recompute only in the first 12 layers"}).plan
    assert (plan.recompute, plan.recompute_share) == ("full", 12 / layers(read(**OPEN).workload))


@pytest.mark.parametrize(
    "notes",
    ["dp=4 fsdp=16", "data parallel 4, FSDP 16", "HSDP, DP 4, shard size 16", "DP 4, FSDP 16", "DP 4; dp_shard 16"],
)
def test_copies_beside_shards_leave_neither_tensors_nor_stages(notes):
    plan = read(**OPEN | {"notes": notes}).plan
    assert (plan.tensor, plan.pipeline, plan.data, plan.data_shard) == (1, 1, 64, 16)
    plan = read(**OPEN | {"tp": "2", "notes": notes.replace("16", "8")}).plan
    assert (plan.tensor, plan.pipeline, plan.data, plan.data_shard) == (2, 1, 32, 8)


SMALL = OPEN | {"gpus": "8", "tp": "1", "pp": "1", "global_batch_sequences": ""}


@pytest.mark.parametrize(
    "notes",
    ["On average 52 of 64 GPUs used", "8 of 64 GPUs used for evaluation", "8 of 64 GPUs used as spares"]
    + ["32 of 64 GPUs used for tensor parallelism", "60 of the 64 GPUs busy", "32 of 64 GPUs used in another run"],
)
def test_accelerators_that_do_something_else_are_used_too(notes):
    assert read(**OPEN | {"notes": f"{notes}; TP 8"}).plan.accelerators == 64


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"notes": "TP 8 never crosses nodes"}, "tensor", 8),
        ({"notes": "full recompute never leaves memory short"}, "recompute", "full"),
        ({"notes": "FSDP never ran out of memory"}, "zero_stage", 3),
        ({"notes": "flash attention 2 never stores the N x N matrix", "flash_attention": ""}, "attention", "flash_2"),
        ({"notes": "gradient checkpointing was never enabled"}, "recompute", "none"),
        ({"zero_stage_or_fsdp": "FSDP2 (reshard_after_forward=never) + AC"}, "zero_stage", 2),
        ({"zero_stage_or_fsdp": "MiCS 2.4x faster"}, "data_shard", None),
        ({"zero_stage_or_fsdp": "MiCS (2 nodes)"}, "data_shard", None),
        ({"zero_stage_or_fsdp": "not used"}, "zero_stage", 0),
        ({"notes": "tested on T4/P100"}, "tensor", 1),
        ({"notes": "T4/P4 GPUs are older"}, "pipeline", 1),
        ({"notes": "on p4-t2 nodes"}, "pipeline", 1),
        ({"notes": "T8/P2/D4"}, "tensor", 8),
        ({"notes": "data pipelining over 4 hosts"}, "pipeline", 1),
        ({"notes": "input pipelining across 8 hosts"}, "pipeline", 1),
        ({"notes": "full activation checkpointing in 3 of 4 runs"}, "recompute_share", 1.0),
        ({"recompute": "one_in_four"}, "recompute_share", 0.25),
        ({"recompute": "not enabled"}, "recompute", "none"),
        ({"hardware": "V100-32GB", "precision": "fp16", "flash_attention": "1"}, "attention", "flash"),
    ],
)
def test_words_near_to_others(changes, field, value):
    assert getattr(read(**OPEN | changes).plan, field) == value


@pytest.mark.parametrize(
    ("notes", "batch"),
    [("throughput 3.5 samples/GPU/s; GBS 64", 64), ("12.3 sequences/GPU/s, batch size 64", 64)]
    + [("17 samples/device per second; batch 128", 128), ("12 samples per GPU per second; batch 128", 128)]
    + [("64 seqs/GPU-hour; GBS 128", 128), ("8 sequences/GPU", 64), ("16384 tokens per step per GPU", 64)]
    + [("65536 tokens per step per GPU; mbs 2, ga 4", 64), ("batch of 65536 tokens per GPU", 256)]
    + [("batch size 100, gradient accumulation 4", 100), ("batch 12, gradient accumulation 40", 3840)]
    + [("warm-up batch of 0.1M tokens; 2 sequences per GPU, GA 64", 1024), ("batch of 2M tokens per GPU-hour", 1024)],
)
def test_rates_and_parts_are_no_batches(notes, batch):
    assert read(**SMALL | {"notes": notes}).workload.batch == batch


@pytest.mark.parametrize(
    ("cell", "software"),
    [("FSDP (like DeepSpeed ZeRO-3)", "fsdp"), ("FSDP full_shard = DeepSpeed stage 3", "fsdp")]
    + [("DeepSpeed ZeRO-3", "deepspeed")],
)
def test_software_that_another_is_likened_to(cell, software):
    assert read(**OPEN | {"source": "FSDP against DeepSpeed", "zero_stage_or_fsdp": cell}).stack == software


@pytest.mark.parametrize("notes", ["compared with 2 slices of 256", "Kubernetes: 128 pods", "Other rows: 4 slices"])
def test_slices_of_others(notes):
    row = {"hardware": "TPU v4", "gpus": "512", "gpus_per_node": "4", "interconnect_note": "", "notes": notes}
    assert read(**OPEN | row).fabric == "ici"


@pytest.mark.parametrize(
    ("note", "gbytes"),
    [("800 Gb/s per A100 server", 12.5), ("400 Gb/s per H100 node", 6.25), ("800 Gb/s per A100-80GB node", 12.5)]
    + [("200 Gb/s per MI300X", 25.0), ("400 Gb/s per H100-SXM", 50.0)],
)
def test_a_server_named_by_its_accelerators_is_a_server(note, gbytes):
    assert between_nodes(note, 8, 50e9) == pytest.approx(1e9 * gbytes)


def test_the_optimizers_offload_is_no_activation():
    facts = facts_of(OPEN | {"notes": "full activation checkpointing with CPU offload of the optimizer"})
    assert facts.get("host_optimizer")
    assert not facts.get("offloaded_activations")


def test_global_tokens_are_no_sequences():
    meant = meaning("B_global (tokens)")
    assert meant is not None
    assert meant.columns == ("batch_tokens",)
