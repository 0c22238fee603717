"""The best cluster and its plans, for one job or several: continuous, of real parts, over a frontier."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.clusters import one_job as one_job
    from optimize.clusters.answers import Answer as Answer
    from optimize.clusters.answers import DesignResult as DesignResult
    from optimize.clusters.answers import continuous_answer as continuous_answer
    from optimize.clusters.answers import misses as misses
    from optimize.clusters.counts import cell_bounds as cell_bounds
    from optimize.clusters.counts import cells as cells
    from optimize.clusters.counts import most_accelerators as most_accelerators
    from optimize.clusters.counts import priced_products as priced_products
    from optimize.clusters.counts import rows_of as rows_of
    from optimize.clusters.design import design as design
    from optimize.clusters.evolution import EVOLVED as EVOLVED
    from optimize.clusters.evolution import evolve as evolve
    from optimize.clusters.evolution import evolved as evolved
    from optimize.clusters.frontier import FACTORS as FACTORS
    from optimize.clusters.frontier import SWEPT as SWEPT
    from optimize.clusters.frontier import holding as holding
    from optimize.clusters.frontier import monotone as monotone
    from optimize.clusters.frontier import point_of as point_of
    from optimize.clusters.genes import Found as Found
    from optimize.clusters.genes import Genes as Genes
    from optimize.clusters.genes import Values as Values
    from optimize.clusters.genes import reflected as reflected
    from optimize.clusters.inputs import DesignInputs as DesignInputs
    from optimize.clusters.mixes import Mixed as Mixed
    from optimize.clusters.mixes import MixProgress as MixProgress
    from optimize.clusters.mixes import search_mix as search_mix
    from optimize.clusters.one_job import BRIEFLY as BRIEFLY
    from optimize.clusters.one_job import by_count as by_count
    from optimize.clusters.one_job import levels_of as levels_of
    from optimize.clusters.one_job import narrow as narrow
    from optimize.clusters.one_job import offer_evolved as offer_evolved
    from optimize.clusters.progress import TOLERANCE as TOLERANCE
    from optimize.clusters.progress import Best as Best
    from optimize.clusters.progress import Cell as Cell
    from optimize.clusters.progress import Progress as Progress
    from optimize.clusters.rows import open_counts as open_counts
    from optimize.clusters.screening import tangents_of as tangents_of
    from optimize.clusters.valued import INFEASIBLE as INFEASIBLE
    from optimize.clusters.valued import Valued as Valued
    from optimize.clusters.valued import valued as valued

door.hang(__name__)
