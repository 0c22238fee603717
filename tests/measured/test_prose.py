"""Rows whose layout stands in sentences, as papers write them."""

import pytest

from tests.support.row_by_hand import ROW, read, refused

OPEN = ROW | dict.fromkeys(("tp", "cp", "pp", "dp", "sp", "vpp", "zero_stage_or_fsdp", "recompute"), "")
OPEN |= {"source": "a paper", "precision": "bf16", "micro_batch": "", "flash_attention": ""}


@pytest.mark.parametrize(
    ("notes", "fields"),
    [
        (
            "We use tensor parallelism of 4 with sequence parallelism, 2 pipeline stages and selective activation "
            "recomputation; optimizer states are sharded across data-parallel ranks.",
            {"tensor": 4, "sequence_parallel": True, "pipeline": 2, "recompute": "selective", "zero_stage": 1},
        ),
        (
            "Fully sharded data parallel with activation checkpointing on every block; 1 sequence per GPU.",
            {"zero_stage": 3, "recompute": "full", "microbatch": 1},
        ),
        (
            "ZeRO stage 2 with CPU offloading of the optimizer states",
            {"zero_stage": 2, "offload_optimizer": 1.0, "offload_gradients": 1.0},
        ),
        (
            "four-stage interleaved pipeline with two model chunks per device, no tensor parallelism",
            {"pipeline": 4, "virtual_stages": 2, "schedule": "interleaved", "tensor": 1},
        ),
        ("8 pipeline stages with micro-batches of 2 sequences", {"pipeline": 8, "microbatch": 2}),
        ("GPipe with 4 stages and 8 microbatches", {"pipeline": 4, "schedule": "gpipe"}),
        ("tensor parallelism 2, pipeline parallelism 8, data parallelism 4", {"tensor": 2, "pipeline": 8, "data": 4}),
        ("every other transformer block is checkpointed", {"recompute": "full", "recompute_share": 0.5}),
        (
            "parameters are sharded within a node and replicated across nodes (hybrid sharding)",
            {"zero_stage": 3, "data_shard": 8},
        ),
        ("FSDP with sharding groups of 16 GPUs", {"zero_stage": 3, "data_shard": 16}),
        ("gradient all-reduce is not overlapped with the backward pass", {"overlap_data": False}),
        ("gradient reduction is overlapped with backpropagation", {"overlap_data": True}),
    ],
)
def test_sentences(notes, fields):
    plan = read(**OPEN | {"notes": notes}).plan
    assert {name: getattr(plan, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("notes", "batch"),
    [("2 sequences per GPU, accumulated over 4 micro-steps", 512), ("256 sequences per optimizer step", 256)]
    + [("a global batch of about 2M tokens", 1024), ("each step processes 2 million tokens", 1024)],
)
def test_batches_in_sentences(notes, batch):
    row = OPEN | {"global_batch_sequences": "", "tp": "1", "pp": "1"}
    assert read(**row | {"notes": notes}).workload.batch == batch


@pytest.mark.parametrize(
    ("notes", "tokens"),
    [("16k context", 16384), ("context length 8192", 8192), ("sequences of 2,048 tokens", 2048)]
    + [("sequence length of 32k", 32768), ("a Llama's own", 8192)],
)
def test_sequences_in_words_count_before_the_model(notes, tokens):
    sizes = ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "gated_ffn", "vocab", "params_B", "seq")
    row = OPEN | dict.fromkeys(sizes, "") | {"model": "Llama-3-8B", "tp": "1", "pp": "1"}
    assert read(**row | {"notes": notes}).workload.sequence == tokens


@pytest.mark.parametrize(
    ("cell", "share"),
    [("a quarter of the layers", 0.25), ("every third layer", 1 / 3), ("a third of all blocks", 1 / 3)],
)
def test_shares_in_words(cell, share):
    assert read(**OPEN | {"recompute": cell}).plan.recompute_share == share


@pytest.mark.parametrize("cell", ["4 nodes (32 GPUs)", "four nodes of 8", "32 (4x8)", "4 nodes"])
def test_accelerators_in_sentences(cell):
    assert read(**OPEN | {"gpus": cell}).plan.accelerators == 32


@pytest.mark.parametrize("notes", ["throughput of autoregressive decoding", "we fine-tune with LoRA adapters"])
def test_sentences_of_what_is_not_trained(notes):
    assert "in its words" in refused(**OPEN | {"notes": notes})
