"""Models: a builder for each family, and the pieces that a new one is made of."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.models.adapters import freeze as freeze
    from costmodel.models.adapters import low_rank as low_rank
    from costmodel.models.adapters import weighted as weighted
    from costmodel.models.decoder import decoder as decoder
    from costmodel.models.dlrm import dlrm as dlrm
    from costmodel.models.encoder import encoder as encoder
    from costmodel.models.encoder_decoder import encoder_decoder as encoder_decoder
    from costmodel.models.evoformer import evoformer as evoformer
    from costmodel.models.moe import Latent as Latent
    from costmodel.models.moe import moe_decoder as moe_decoder
    from costmodel.models.pieces import SPREAD as SPREAD
    from costmodel.models.pieces import TOKENS as TOKENS
    from costmodel.models.swin import swin as swin

door.hang(__name__)
