"""The fit of the constants of the stack on measured rows."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.measured.fit.evaluate import EXPERTS as EXPERTS
    from costmodel.measured.fit.evaluate import Evaluator as Evaluator
    from costmodel.measured.fit.evaluate import best_free as best_free
    from costmodel.measured.fit.evaluate import evaluator as evaluator
    from costmodel.measured.fit.evaluate import group as group
    from costmodel.measured.fit.evaluate import linearised as linearised
    from costmodel.measured.fit.evaluate import scatter_class as scatter_class
    from costmodel.measured.fit.fitted import Fitted as Fitted
    from costmodel.measured.fit.fitted import as_posterior as as_posterior
    from costmodel.measured.fit.fitted import as_tables as as_tables
    from costmodel.measured.fit.fitted import from_files as from_files
    from costmodel.measured.fit.fitted import shipped as shipped
    from costmodel.measured.fit.kernels import Kernel as Kernel
    from costmodel.measured.fit.kernels import kernels as kernels
    from costmodel.measured.fit.kernels import linearised_kernels as linearised_kernels
    from costmodel.measured.fit.kernels import own_kernels as own_kernels
    from costmodel.measured.fit.own_software import COMMON as COMMON
    from costmodel.measured.fit.own_software import common_direction as common_direction
    from costmodel.measured.fit.own_software import of_own_software as of_own_software
    from costmodel.measured.fit.parameters import LEVELS as LEVELS
    from costmodel.measured.fit.parameters import PARAMETERS as PARAMETERS
    from costmodel.measured.fit.parameters import SHARED as SHARED
    from costmodel.measured.fit.parameters import SLOW as SLOW
    from costmodel.measured.fit.parameters import TWO_REGIMES as TWO_REGIMES
    from costmodel.measured.fit.parameters import Design as Design
    from costmodel.measured.fit.parameters import Group as Group
    from costmodel.measured.fit.parameters import Key as Key
    from costmodel.measured.fit.parameters import Parameter as Parameter
    from costmodel.measured.fit.parameters import designs as designs
    from costmodel.measured.fit.problem import Problem as Problem
    from costmodel.measured.fit.regimes import likely_slow as likely_slow
    from costmodel.measured.fit.regimes import slow_probability as slow_probability
    from costmodel.measured.fit.scatter import scatter as scatter
    from costmodel.measured.fit.scatter import within_scatter as within_scatter
    from costmodel.measured.fit.solve import Loss as Loss
    from costmodel.measured.fit.solve import Solution as Solution
    from costmodel.measured.fit.solve import solve as solve
    from costmodel.measured.fit.train import Trained as Trained
    from costmodel.measured.fit.train import as_fitted as as_fitted
    from costmodel.measured.fit.train import left_out_errors as left_out_errors
    from costmodel.measured.fit.train import of_software as of_software
    from costmodel.measured.fit.train import train as train
    from costmodel.measured.fit.train import without_each as without_each

door.hang(__name__)
