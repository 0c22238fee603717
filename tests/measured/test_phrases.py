"""No phrase of the reader serves one source alone, but those that are listed with their reason (CHANGELOG)."""

import pytest

from costmodel.measured.rows.words import meanings
from tests.support import NIGHTLY, often
from tests.support.phrases import distinct, phrases, reading, sources_without
from tests.support.row_by_hand import bulk_rows, needs_bulk

_NAME = "the name of software, of a kernel or of a format"
_PLAIN = "plain words that paraphrases test (test_meanings.py); one source here happens to say them"

ONE_SOURCE = {
    **dict.fromkeys(
        [
            ("SOFTWARE_NAMES", name)
            for name in ("nanotron", "megatron_core|mcore|m_core", "max text", "auto model", "deep speed", "nemo")
        ]
        + [("SOFTWARE_NAMES", name) for name in ("gpt neox", "mega scale", "narayanan|korthikanti", "big_science")]
        + [("SOFTWARE_NAMES", "vtrain|v_train|intern_evo|galvatron|aceso|merak|libai")]
        + [("SOFTWARE_NAMES", "colossal|colossalai"), ("allocated_memory", "colossal|colossalai")]
        + [("SHARDINGS", "shard grad op"), ("PRECISIONS", "int8")]
        + [("ATTENTIONS", f"fa|flash|flash_attention|flash_attn v? {version}") for version in (1, 2, 3, 4)]
        + [("ATTENTIONS", name) for name in ("splash|pallas", "triton", "flex attention|attn", "xformers")]
        + [("ATTENTIONS", "transformer engine"), ("chunked_loss", "liger*"), ("overlap_expert", "dual pipe*")]
        + [("fused_layers", "liger*"), ("fused_norms", "colossal|colossalai")]
        + [
            ("SCHEDULES", name)
            for name in ("dual pipe*", "zb v", "v half|min|shape*|schedule", "zb|zbb|zbpp|zb_pp", "zero bubble")
        ],
        _NAME,
    ),
    **dict.fromkeys(
        [("overlap_data", meanings.FLAGS["overlap_data"][0]), ("async_tp", meanings.FLAGS["async_tp"][0])]
        + [("allocated_memory", "memory|mem|peak & allocated")]
        + [("memory_of_all", phrase) for phrase in meanings.FLAGS["memory_of_all"] if "rocm" not in phrase]
        + [("overlap_any", "overlap!"), ("eager", "eager"), ("sliding_window", "sliding window*")]
        + [("multi_token", "mtp num? layer*|module*|depth*?")]
        + [("parallel_block", "parallel transformer? block|layer*"), ("dense_layers", "# dense ffn|mlp? layer*")]
        + [("selective_layers", meanings.FLAGS["selective_layers"][0])]
        + [("local_batch", "batch|bs|bsz size? per|a|each gpu|device|chip|rank|dp #")]
        + [("tensor", "tp size|degree? #"), ("pipeline", "pp size|degree? #")]
        + [("data", "dp|data_parallel* world? size|degree? #")]
        + [("accumulation", "# gradient|grad? accum*")]
        + [("whole_heads", "cp|context_parallel* & all_to_all|a2a")]
        + [
            (
                "recompute_layers",
                "recomput*|checkpointing|checkpoint|ckpt|remat* only? of|in|on|for? the? first? # layer*",
            )
        ],
        _PLAIN,
    ),
    ("compiled", "float8"): "torchao casts to float8 in compiled kernels only, whoever runs it",
    ("engine_loss", meanings.FLAGS["engine_loss"][-1]): "the releases of NVIDIA's recipes, each of which names NeMo's",
    ("SUBMISSIONS", "mlperf|mlcommons"): "a contest; three submissions do not say their format, and ran in 8 bits",
    ("SOFTWARE_NAMES", "mlperf"): "its reference of Llama 3.1 is NeMo; two submissions do not say what they ran",
    ("offloaded_projections", "remat policy & custom"): "tpu-recipes prints no more of its policies",
}
"""Meaning or table, and phrase: why it stays although one source alone needs it."""


@needs_bulk
def test_no_phrase_serves_a_single_source(monkeypatch):
    """By day every twelfth phrase, on rows that differ in more than numbers; by night all phrases."""
    rows = distinct(bulk_rows("calibration") + bulk_rows("validation"), by_number=NIGHTLY)
    read = {id(row): reading(row) for row in rows}
    taken = list(phrases())[:: often(12, 1)]
    needed = {phrase: sources_without(monkeypatch, phrase, rows, read) for phrase in taken}
    alone = {(phrase[1] or phrase[0], phrase[2]): found for phrase, found in needed.items() if len(found) == 1}
    assert {key: found for key, found in alone.items() if key not in ONE_SOURCE} == {}
    exceptions = {(phrase[1] or phrase[0], phrase[2]) for phrase in taken} & set(ONE_SOURCE)
    assert exceptions - set(alone) == set()  # what others need by now is no exception any more


def test_phrases_are_named_once():
    known = [phrase for phrase in phrases()]
    assert len(known) == len(set(known))
    assert {key for key in ONE_SOURCE} <= {(phrase[1] or phrase[0], phrase[2]) for phrase in known}


@pytest.mark.parametrize("phrase", [("FLAGS", "compiled", "torch compile*")])
def test_what_a_phrase_serves_is_found(monkeypatch, phrase):
    notes = {"FSDP one": "torch.compile", "FSDP two": "eager", "FSDP three": "torch compiled"}
    row = {"hardware": "H100", "gpus": "8", "model": "Llama-3-8B", "tp": "1"}
    rows = [row | {"source": name, "notes": said} for name, said in notes.items()]
    read = {id(row): reading(row) for row in rows}
    assert sources_without(monkeypatch, phrase, rows, read) == {"FSDP one", "FSDP three"}
    assert {id(row): reading(row) for row in rows} == read
