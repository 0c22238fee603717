"""What a target loss takes: scaling laws, critical batch, campaigns of steps by method."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.target.scaling import LAWS as LAWS
    from costmodel.target.scaling import Law as Law
    from costmodel.target.scaling import best_parameters as best_parameters
    from costmodel.target.scaling import critical_batch as critical_batch
    from costmodel.target.scaling import floor_of as floor_of
    from costmodel.target.scaling import least_flop as least_flop
    from costmodel.target.scaling import loss as loss
    from costmodel.target.scaling import sampled as sampled
    from costmodel.target.scaling import tokens_at_batch as tokens_at_batch
    from costmodel.target.scaling import tokens_for as tokens_for

door.hang(__name__)
