"""Models: a builder for each family, and what a new one is made of.

`attention`, `cross_attention` and `feed_forward` are layers of transformers, each a tuple of operators; `norm`,
`linear`, `activation`, `core`, `residual`, `sync`, `embedding` and `head` are the pieces of which they are made.
`Style` and `Heads` say what layers have alike; `TOKENS` and `SPREAD` are how token rows are divided.
"""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.models.adapters import freeze as freeze
    from costmodel.models.adapters import low_rank as low_rank
    from costmodel.models.adapters import map_operators as map_operators
    from costmodel.models.adapters import weighted as weighted
    from costmodel.models.co_shard import co_sharded as co_sharded
    from costmodel.models.co_shard import in_pieces as in_pieces
    from costmodel.models.decoder import decoder as decoder
    from costmodel.models.dlrm import dlrm as dlrm
    from costmodel.models.encoder import encoder as encoder
    from costmodel.models.encoder_decoder import encoder_decoder as encoder_decoder
    from costmodel.models.evoformer import evoformer as evoformer
    from costmodel.models.layers import attention as attention
    from costmodel.models.layers import causal_density as causal_density
    from costmodel.models.layers import cross_attention as cross_attention
    from costmodel.models.layers import feed_forward as feed_forward
    from costmodel.models.moe import Latent as Latent
    from costmodel.models.moe import moe_decoder as moe_decoder
    from costmodel.models.multi_token import MULTI_TOKEN as MULTI_TOKEN
    from costmodel.models.pieces import SPREAD as SPREAD
    from costmodel.models.pieces import TOKENS as TOKENS
    from costmodel.models.pieces import Heads as Heads
    from costmodel.models.pieces import Style as Style
    from costmodel.models.pieces import activation as activation
    from costmodel.models.pieces import core as core
    from costmodel.models.pieces import embedding as embedding
    from costmodel.models.pieces import head as head
    from costmodel.models.pieces import integral as integral
    from costmodel.models.pieces import linear as linear
    from costmodel.models.pieces import norm as norm
    from costmodel.models.pieces import residual as residual
    from costmodel.models.pieces import sync as sync
    from costmodel.models.swin import swin as swin
    from costmodel.models.variants import run_by as run_by

door.hang(__name__)
