"""What a target loss asks of a cluster: tokens, shape and batch outside of the search for cluster and plan."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.targets.design_for import bound as bound
    from optimize.targets.design_for import design_for as design_for
    from optimize.targets.methods import find_method as find_method
    from optimize.targets.pairs import Target as Target
    from optimize.targets.pairs import jobs_of as jobs_of
    from optimize.targets.pairs import least_loss as least_loss
    from optimize.targets.pairs import scatter as scatter
    from optimize.targets.pairs import shapes as shapes
    from optimize.targets.pairs import sure_tokens as sure_tokens

door.hang(__name__)
