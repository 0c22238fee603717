"""One small workload of every family that plans treat alike, each with what `oracles.legal` says of it by hand."""

from typing import Any

from costmodel.inputs.workload import Workload
from costmodel.models.adapters import low_rank, weighted
from costmodel.models.dlrm import dlrm
from costmodel.models.encoder import encoder
from costmodel.models.encoder_decoder import encoder_decoder
from costmodel.models.evoformer import evoformer
from costmodel.models.swin import swin
from tests.support.builders import small_decoder, small_moe


def small_encoder_decoder() -> Workload:
    sizes: dict[str, Any] = {"layers": 4, "decoder_layers": 2, "hidden": 48, "heads": 6, "ffn": 96, "vocabulary": 100}
    return encoder_decoder(**sizes, sequence=24, batch=12)


def small_swin() -> Workload:
    return swin(depths=(2, 2), hidden=16, heads=(2, 4), image=64, window=(4, 4), batch=24)


def small_dlrm() -> Workload:
    return dlrm(tables=(100, 200, 300), hidden=16, dense_features=4, bottom=(8, 16), top=(8, 1), batch=24)


def small_encoder() -> Workload:
    return encoder(layers=4, hidden=48, heads=6, ffn=96, vocabulary=100, sequence=24, batch=12)


def small_evoformer() -> Workload:
    sizes: dict[str, Any] = {"hidden": 32, "pair_hidden": 16, "heads": 4, "pair_heads": 2, "outer_size": 8}
    extra: dict[str, Any] = {"extra_layers": 2, "extra_sequences": 16, "extra_hidden": 16}
    return evoformer(layers=4, sequences=12, residues=24, batch=12, **sizes, **extra)


def small_adapters() -> Workload:
    """Low-rank factors beside two products of a frozen decoder."""
    whole = small_decoder(layers=4, batch=12)
    return low_rank(whole, 4, weighted(whole)[:2])


FAMILIES = {
    "dense": small_decoder(layers=6, batch=12),
    "experts": small_moe(batch=16),
    "multi-token": small_moe(layers=3, mtp_layers=1, batch=16),
    "encoder-decoder": small_encoder_decoder(),
    "swin": small_swin(),
    "dlrm": small_dlrm(),
}
