"""Explicit orders of operations, played out: the second route to the time of a step, and the layers of each stage."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.graph import staged as staged
    from costmodel.graph.amounts import amounts as amounts
    from costmodel.graph.amounts import total_amounts as total_amounts
    from costmodel.graph.arranged import arrange as arrange
    from costmodel.graph.dataflow import Dataflow as Dataflow
    from costmodel.graph.dataflow import build as build
    from costmodel.graph.graph import Graph as Graph
    from costmodel.graph.graph import graph_of as graph_of
    from costmodel.graph.layout import chunk_count as chunk_count
    from costmodel.graph.layout import kinds_by_chunk as kinds_by_chunk
    from costmodel.graph.layout import kinds_by_stage as kinds_by_stage
    from costmodel.graph.layout import layers_by_chunk as layers_by_chunk
    from costmodel.graph.layouts import cheapest as cheapest
    from costmodel.graph.layouts import cheapest_across as cheapest_across
    from costmodel.graph.layouts import layouts as layouts
    from costmodel.graph.layouts import seconds_on as seconds_on
    from costmodel.graph.materialize import Transfer as Transfer
    from costmodel.graph.materialize import materialize as materialize
    from costmodel.graph.named import CHIMERA as CHIMERA
    from costmodel.graph.named import n_forwards_one_backward as n_forwards_one_backward
    from costmodel.graph.named import recycled as recycled
    from costmodel.graph.named import with_shared_blocks as with_shared_blocks
    from costmodel.graph.pipelines import pipeline as pipeline
    from costmodel.graph.plans import co_shard as co_shard
    from costmodel.graph.plans import data_parallel as data_parallel
    from costmodel.graph.plans import interlaced as interlaced
    from costmodel.graph.plans import pipelined as pipelined
    from costmodel.graph.plans import tensor_parallel as tensor_parallel
    from costmodel.graph.play import Played as Played
    from costmodel.graph.play import Task as Task
    from costmodel.graph.play import order as order
    from costmodel.graph.play import play as play
    from costmodel.graph.priced import prices as prices
    from costmodel.graph.primitives import before as before
    from costmodel.graph.primitives import offload as offload
    from costmodel.graph.primitives import order_by as order_by
    from costmodel.graph.primitives import place as place
    from costmodel.graph.primitives import played as played
    from costmodel.graph.primitives import recompute as recompute
    from costmodel.graph.primitives import transform as transform
    from costmodel.graph.run import Costs as Costs
    from costmodel.graph.run import makespan_s as makespan_s
    from costmodel.graph.run import run as run
    from costmodel.graph.search import LIMITS as LIMITS
    from costmodel.graph.search import Placement as Placement
    from costmodel.graph.search import Unrolled as Unrolled
    from costmodel.graph.search import chain as chain
    from costmodel.graph.search import in_order as in_order
    from costmodel.graph.search import placements as placements
    from costmodel.graph.search import repeat as repeat
    from costmodel.graph.search import unroll as unroll
    from costmodel.graph.staged import MODES as MODES
    from costmodel.graph.staged import StagedModel as StagedModel
    from costmodel.graph.staged import StageSeconds as StageSeconds
    from costmodel.graph.staged import paths as paths
    from costmodel.graph.views import Operator as Operator
    from costmodel.graph.views import Tensor as Tensor
    from costmodel.graph.views import View as View
    from costmodel.graph.views import layout_of as layout_of
    from costmodel.graph.views import replicate as replicate
    from costmodel.graph.views import split as split
    from costmodel.graph.views import whole as whole

door.hang(__name__)
