"""What is asked: objective, limits, jobs, the space of hardware."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.question.objective import SECONDS_A_DAY as SECONDS_A_DAY
    from optimize.question.objective import Job as Job
    from optimize.question.objective import Limits as Limits
    from optimize.question.objective import Objective as Objective
    from optimize.question.objective import Quantities as Quantities
    from optimize.question.objective import residuals as residuals
    from optimize.question.problem import Problem as Problem
    from optimize.question.space import RATES as RATES
    from optimize.question.space import Ranges as Ranges
    from optimize.question.space import Space as Space
    from optimize.question.space import as_table as as_table
    from optimize.question.space import known_clusters as known_clusters
    from optimize.question.space import known_ranges as known_ranges
    from optimize.question.space import sized as sized
    from optimize.question.space import space as space

door.hang(__name__)
