"""One small workload of every family that plans treat alike, each with what `oracles.legal` says of it by hand."""

from costmodel.inputs.workload import Workload
from costmodel.models.dlrm import dlrm
from costmodel.models.encoder_decoder import encoder_decoder
from costmodel.models.swin import swin
from tests.support.builders import small_decoder, small_moe


def small_encoder_decoder() -> Workload:
    sizes = {"layers": 4, "decoder_layers": 2, "hidden": 48, "heads": 6, "ffn": 96, "vocabulary": 100}
    return encoder_decoder(**sizes, sequence=24, batch=12)


def small_swin() -> Workload:
    return swin(depths=(2, 2), hidden=16, heads=(2, 4), image=64, window=(4, 4), batch=24)


def small_dlrm() -> Workload:
    return dlrm(tables=(100, 200, 300), hidden=16, dense_features=4, bottom=(8, 16), top=(8, 1), batch=24)


FAMILIES = {
    "dense": small_decoder(layers=6, batch=12),
    "experts": small_moe(batch=16),
    "encoder-decoder": small_encoder_decoder(),
    "swin": small_swin(),
    "dlrm": small_dlrm(),
}
