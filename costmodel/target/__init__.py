"""What a target loss takes: scaling laws, critical batch, campaigns of steps by method."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.target.campaign import campaign as campaign
    from costmodel.target.campaign import language_model as language_model
    from costmodel.target.campaign import quadratic as quadratic
    from costmodel.target.methods import METHODS as METHODS
    from costmodel.target.methods import Method as Method
    from costmodel.target.methods import applied as applied
    from costmodel.target.methods import arrives as arrives
    from costmodel.target.methods import compressed as compressed
    from costmodel.target.methods import local as local
    from costmodel.target.methods import narrowed as narrowed
    from costmodel.target.methods import plain as plain
    from costmodel.target.methods import steps_to as steps_to
    from costmodel.target.methods import subnetworks as subnetworks
    from costmodel.target.phases import fewest as fewest
    from costmodel.target.phases import instance as instance
    from costmodel.target.phases import phases as phases
    from costmodel.target.phases import step_of as step_of
    from costmodel.target.phases import winners as winners
    from costmodel.target.scaling import LAW as LAW
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
