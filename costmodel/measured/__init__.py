"""What was measured: rows of published runs, the fit of the constants, its posterior, calibration."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.measured import posterior as posterior
    from costmodel.measured.calibrate import Calibrated as Calibrated
    from costmodel.measured.calibrate import Update as Update
    from costmodel.measured.calibrate import calibrate as calibrate
    from costmodel.measured.calibrate import calibrate_kernels as calibrate_kernels
    from costmodel.measured.certainty import FITS as FITS
    from costmodel.measured.certainty import fits_probability as fits_probability
    from costmodel.measured.certainty import with_margin as with_margin
    from costmodel.measured.collective_fit import fit_collectives as fit_collectives
    from costmodel.measured.collective_fit import log_errors as log_errors
    from costmodel.measured.comparison import Comparison as Comparison
    from costmodel.measured.comparison import compare as compare
    from costmodel.measured.comparison import step_log_sd as step_log_sd
    from costmodel.measured.deviations import as_deviations as as_deviations
    from costmodel.measured.deviations import deviated as deviated
    from costmodel.measured.deviations import drawn_stack as drawn_stack
    from costmodel.measured.deviations import with_deviations as with_deviations
    from costmodel.measured.fit import TWO_REGIMES as TWO_REGIMES
    from costmodel.measured.fit import Fitted as Fitted
    from costmodel.measured.fit import Problem as Problem
    from costmodel.measured.fit import Trained as Trained
    from costmodel.measured.fit import as_fitted as as_fitted
    from costmodel.measured.fit import as_posterior as as_posterior
    from costmodel.measured.fit import as_tables as as_tables
    from costmodel.measured.fit import kernels as kernels
    from costmodel.measured.fit import left_out_errors as left_out_errors
    from costmodel.measured.fit import likely_slow as likely_slow
    from costmodel.measured.fit import of_software as of_software
    from costmodel.measured.fit import own_kernels as own_kernels
    from costmodel.measured.fit import scatter as scatter
    from costmodel.measured.fit import shipped as shipped
    from costmodel.measured.fit import slow_probability as slow_probability
    from costmodel.measured.fit import train as train
    from costmodel.measured.fit import within_scatter as within_scatter
    from costmodel.measured.fit import without_each as without_each
    from costmodel.measured.logged import held_in_order as held_in_order
    from costmodel.measured.logged import logged_bytes as logged_bytes
    from costmodel.measured.memory_scatter import memory_errors as memory_errors
    from costmodel.measured.memory_scatter import memory_scatter as memory_scatter
    from costmodel.measured.node import COLUMNS as COLUMNS
    from costmodel.measured.node import Devices as Devices
    from costmodel.measured.node import Measured as Measured
    from costmodel.measured.node import Node as Node
    from costmodel.measured.node import OwnConstants as OwnConstants
    from costmodel.measured.node import as_rows as as_rows
    from costmodel.measured.node import carried as carried
    from costmodel.measured.node import fit_node as fit_node
    from costmodel.measured.node import measure as measure
    from costmodel.measured.node import own_constants as own_constants
    from costmodel.measured.own_table import collectives_of as collectives_of
    from costmodel.measured.own_table import is_microbenchmarks as is_microbenchmarks
    from costmodel.measured.own_table import read_microbenchmarks as read_microbenchmarks
    from costmodel.measured.rows import COLUMN_WORDS as COLUMN_WORDS
    from costmodel.measured.rows import OPEN_LAYOUT as OPEN_LAYOUT
    from costmodel.measured.rows import Case as Case
    from costmodel.measured.rows import Unreadable as Unreadable
    from costmodel.measured.rows import alternatives as alternatives
    from costmodel.measured.rows import case as case
    from costmodel.measured.rows import doubts as doubts
    from costmodel.measured.rows import evaluated as evaluated
    from costmodel.measured.rows import in_any_software as in_any_software
    from costmodel.measured.rows import in_other_software as in_other_software
    from costmodel.measured.rows import lightened as lightened
    from costmodel.measured.rows import read_cases as read_cases
    from costmodel.measured.rows import settle as settle
    from costmodel.measured.rows import stacked as stacked
    from costmodel.measured.rows import timed_by_rate as timed_by_rate

door.hang(__name__)
