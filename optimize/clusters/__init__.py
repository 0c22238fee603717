"""The best cluster and its plans, for one job or several: continuous, of real parts, over a frontier."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.clusters import one_job as one_job
    from optimize.clusters import several_jobs as several_jobs
    from optimize.clusters.answers import Answer as Answer
    from optimize.clusters.answers import continuous_answer as continuous_answer
    from optimize.clusters.answers import misses as misses
    from optimize.clusters.counts import cell_bounds as cell_bounds
    from optimize.clusters.counts import cells as cells
    from optimize.clusters.counts import most_accelerators as most_accelerators
    from optimize.clusters.design import DesignResult as DesignResult
    from optimize.clusters.design import design as design
    from optimize.clusters.evolution import evolve as evolve
    from optimize.clusters.frontier import FACTORS as FACTORS
    from optimize.clusters.frontier import SWEPT as SWEPT
    from optimize.clusters.frontier import monotone as monotone
    from optimize.clusters.frontier import point_of as point_of
    from optimize.clusters.inputs import DesignInputs as DesignInputs
    from optimize.clusters.progress import Best as Best
    from optimize.clusters.progress import Cell as Cell
    from optimize.clusters.progress import Progress as Progress
    from optimize.clusters.screening import tangents_of as tangents_of
    from optimize.clusters.several_jobs_bound import shared_bound as shared_bound

door.hang(__name__)
