"""What is asked: objective, limits, jobs, and what hardware may be bought."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.question.asked import design_problem as design_problem
    from optimize.question.clusters import FAILURES as FAILURES
    from optimize.question.clusters import failing as failing
    from optimize.question.clusters import known_bounds as known_bounds
    from optimize.question.clusters import known_clusters as known_clusters
    from optimize.question.clusters import quantities as quantities
    from optimize.question.clusters import second_of as second_of
    from optimize.question.clusters import sized as sized
    from optimize.question.objective import CLEAN as CLEAN
    from optimize.question.objective import LIMITED as LIMITED
    from optimize.question.objective import RENTALS as RENTALS
    from optimize.question.objective import SECONDS_A_DAY as SECONDS_A_DAY
    from optimize.question.objective import Limits as Limits
    from optimize.question.objective import Objective as Objective
    from optimize.question.problem import Problem as Problem
    from optimize.question.quantities import Job as Job
    from optimize.question.quantities import Quantities as Quantities
    from optimize.question.quantities import products_s as products_s
    from optimize.question.quantities import residuals as residuals
    from optimize.question.rates import RATES as RATES
    from optimize.question.rates import Left as Left
    from optimize.question.rates import Money as Money
    from optimize.question.rates import PowerSum as PowerSum
    from optimize.question.rates import Tangents as Tangents
    from optimize.question.rates import as_table as as_table
    from optimize.question.rates import at_rates as at_rates
    from optimize.question.worth import Valued as Valued
    from optimize.question.worth import Worth as Worth
    from optimize.question.worth import columns as columns
    from optimize.question.worth import whole as whole

door.hang(__name__)
