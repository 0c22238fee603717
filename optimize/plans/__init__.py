"""The best plan on a given cluster: every plan of the lattice evaluated, or bounded."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.plans.best_beside import find_plan as find_plan
    from optimize.plans.checkpoint import check_checkpoint as check_checkpoint
    from optimize.plans.evaluation import exactly as exactly
    from optimize.plans.evaluation import in_numpy as in_numpy
    from optimize.plans.exhaustive import chunk_count as chunk_count
    from optimize.plans.find_in_lattice import find_in_lattice as find_in_lattice
    from optimize.plans.find_in_lattice import find_plan_for as find_plan_for
    from optimize.plans.infeasible import nothing_legal as nothing_legal
    from optimize.plans.inputs import PlanInputs as PlanInputs
    from optimize.plans.launchable import asked_of as asked_of
    from optimize.plans.launchable import can_launch as can_launch
    from optimize.plans.launchable import find_for as find_for
    from optimize.plans.launchable import find_launchable as find_launchable
    from optimize.plans.launchable import launchers as launchers
    from optimize.plans.launchable import refusals as refusals
    from optimize.plans.nearby import nearby as nearby
    from optimize.plans.over_counts import Question as Question
    from optimize.plans.over_counts import Row as Row
    from optimize.plans.over_counts import best_on as best_on
    from optimize.plans.over_counts import best_over as best_over
    from optimize.plans.plan_values import plan_value as plan_value
    from optimize.plans.processes import search_shared as search_shared
    from optimize.plans.processes import standard_output_for_errors as standard_output_for_errors
    from optimize.plans.result import PlanResult as PlanResult
    from optimize.plans.result import Ranked as Ranked
    from optimize.plans.result import restriction_cost as restriction_cost
    from optimize.plans.row_bounds import any_schedule_s as any_schedule_s
    from optimize.plans.row_bounds import row_bounds_s as row_bounds_s
    from optimize.plans.runner_ups import RunnerUp as RunnerUp
    from optimize.plans.table import PlanTable as PlanTable

door.hang(__name__)
