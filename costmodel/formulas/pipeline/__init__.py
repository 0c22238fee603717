"""Seconds of a pipeline's step: its stages, and the longest of the critical paths through them."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.formulas.pipeline.paths import pipeline_s as pipeline_s
    from costmodel.formulas.pipeline.stages import Hops as Hops
    from costmodel.formulas.pipeline.stages import Pipeline as Pipeline
    from costmodel.formulas.pipeline.stages import Stage as Stage
    from costmodel.formulas.pipeline.stages import plain_s as plain_s
    from costmodel.formulas.pipeline.streams import Streams as Streams
    from costmodel.formulas.pipeline.streams import streamed_s as streamed_s

door.hang(__name__)
