"""Ordinary notes and cells that new patterns once took for something else."""

import pytest

from costmodel.inputs import layers
from costmodel.measured.rows import Unreadable, case
from costmodel.measured.rows.notes import facts_of
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
