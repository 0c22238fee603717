"""Every legal plan: its axes, its degrees, its rules, and the plan that is taken when none is given."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.lattice.axes import LARGEST_VIRTUAL as LARGEST_VIRTUAL
    from optimize.lattice.axes import least_fill as least_fill
    from optimize.lattice.axis import DEGREES as DEGREES
    from optimize.lattice.axis import Axis as Axis
    from optimize.lattice.axis import distinct as distinct
    from optimize.lattice.axis import divisors as divisors
    from optimize.lattice.axis import even_layers as even_layers
    from optimize.lattice.axis import recompute_names as recompute_names
    from optimize.lattice.axis import wanted as wanted
    from optimize.lattice.counts import SORTED as SORTED
    from optimize.lattice.counts import fill_of_rows as fill_of_rows
    from optimize.lattice.counts import lattice_of_counts as lattice_of_counts
    from optimize.lattice.counts import lattice_of_rows as lattice_of_rows
    from optimize.lattice.counts import legal_counts as legal_counts
    from optimize.lattice.counts import points_of_rows as points_of_rows
    from optimize.lattice.counts import possible_counts as possible_counts
    from optimize.lattice.counts import rows_of_counts as rows_of_counts
    from optimize.lattice.counts import switches_of_rows as switches_of_rows
    from optimize.lattice.counts import with_microbatches as with_microbatches
    from optimize.lattice.counts import with_options as with_options
    from optimize.lattice.default_plan import choose_plan as choose_plan
    from optimize.lattice.default_plan import enlarged as enlarged
    from optimize.lattice.default_plan import usual_formats as usual_formats
    from optimize.lattice.degrees import LARGEST as LARGEST
    from optimize.lattice.enumeration import count as count
    from optimize.lattice.enumeration import lattice as lattice
    from optimize.lattice.enumeration import within as within
    from optimize.lattice.lattice import CHUNK as CHUNK
    from optimize.lattice.lattice import LEFT_OUT as LEFT_OUT
    from optimize.lattice.lattice import OVERLAPS as OVERLAPS
    from optimize.lattice.lattice import SEARCHED as SEARCHED
    from optimize.lattice.lattice import Chunk as Chunk
    from optimize.lattice.lattice import Lattice as Lattice
    from optimize.lattice.lattice import number_of as number_of
    from optimize.lattice.least import SAFE as SAFE
    from optimize.lattice.least import cheapest as cheapest
    from optimize.lattice.least import lean_bytes as lean_bytes
    from optimize.lattice.least import least_bytes as least_bytes
    from optimize.lattice.least import least_step_s as least_step_s
    from optimize.lattice.least import least_way_s as least_way_s
    from optimize.lattice.least import may_go_both_ways as may_go_both_ways
    from optimize.lattice.least import under_any as under_any
    from optimize.lattice.narrowing import thinned as thinned
    from optimize.lattice.recompute_families import Families as Families

door.hang(__name__)
