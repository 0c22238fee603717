"""The layers of a plan, placed one by one: layers of each stage, recompute of each layer."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.layers.exact import segments as segments
    from optimize.layers.find_layers import LayersResult as LayersResult
    from optimize.layers.find_layers import find_layers as find_layers
    from optimize.layers.improved import ImprovedLayers as ImprovedLayers
    from optimize.layers.improved import improve_layers as improve_layers
    from optimize.layers.problem import Candidate as Candidate
    from optimize.layers.problem import LayeredProblem as LayeredProblem
    from optimize.layers.problem import problem as problem

door.hang(__name__)
