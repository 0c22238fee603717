"""All reading of files: what names and files say, checked, in SI units; and the rules of plans."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.specs.checks import COUNT as COUNT
    from costmodel.specs.checks import COUNT_FROM_0 as COUNT_FROM_0
    from costmodel.specs.checks import FLAG as FLAG
    from costmodel.specs.checks import LARGEST_NUMBER as LARGEST_NUMBER
    from costmodel.specs.checks import LEAF as LEAF
    from costmodel.specs.checks import LEAVES as LEAVES
    from costmodel.specs.checks import MAPPING as MAPPING
    from costmodel.specs.checks import POSITIVE as POSITIVE
    from costmodel.specs.checks import PROBABILITY as PROBABILITY
    from costmodel.specs.checks import REQUIRED as REQUIRED
    from costmodel.specs.checks import SHARE as SHARE
    from costmodel.specs.checks import TEXT as TEXT
    from costmodel.specs.checks import Check as Check
    from costmodel.specs.checks import alike as alike
    from costmodel.specs.checks import an as an
    from costmodel.specs.checks import called as called
    from costmodel.specs.checks import check_fields as check_fields
    from costmodel.specs.checks import convert as convert
    from costmodel.specs.checks import fail as fail
    from costmodel.specs.checks import is_count as is_count
    from costmodel.specs.checks import is_number as is_number
    from costmodel.specs.checks import nearest as nearest
    from costmodel.specs.checks import one_of as one_of
    from costmodel.specs.checks import require as require
    from costmodel.specs.curves import anchored as anchored
    from costmodel.specs.curves import priced as priced
    from costmodel.specs.files import SpecError as SpecError
    from costmodel.specs.files import digest_of_files as digest_of_files
    from costmodel.specs.files import plain as plain
    from costmodel.specs.files import read_mapping as read_mapping
    from costmodel.specs.files import read_text as read_text
    from costmodel.specs.files import show as show
    from costmodel.specs.files import why_not as why_not
    from costmodel.specs.files import write_file as write_file
    from costmodel.specs.given import expecting as expecting
    from costmodel.specs.loading import cluster_names as cluster_names
    from costmodel.specs.loading import load_cluster as load_cluster
    from costmodel.specs.loading import load_curves as load_curves
    from costmodel.specs.loading import load_plan as load_plan
    from costmodel.specs.loading import load_stack as load_stack
    from costmodel.specs.models import MODELS as MODELS
    from costmodel.specs.models import workload_from as workload_from
    from costmodel.specs.nccl import CollectiveRow as CollectiveRow
    from costmodel.specs.nccl import is_nccl as is_nccl
    from costmodel.specs.nccl import read_nccl as read_nccl
    from costmodel.specs.plans import PLAN_CHECKS as PLAN_CHECKS
    from costmodel.specs.plans import plan_from as plan_from
    from costmodel.specs.rows import as_table as as_table
    from costmodel.specs.rows import read_rows as read_rows
    from costmodel.specs.rows import write_table as write_table
    from costmodel.specs.rules import Demands as Demands
    from costmodel.specs.rules import check_plan as check_plan
    from costmodel.specs.rules import demands as demands
    from costmodel.specs.rules import kept as kept
    from costmodel.specs.rules import unsound_fields as unsound_fields
    from costmodel.specs.rules import violations as violations
    from costmodel.specs.stacks import chosen_software as chosen_software
    from costmodel.specs.stacks import compiled_for as compiled_for
    from costmodel.specs.stacks import constant_group as constant_group
    from costmodel.specs.stacks import die_of as die_of
    from costmodel.specs.stacks import family_of as family_of
    from costmodel.specs.stacks import stack_values as stack_values
    from costmodel.specs.tables import DATA as DATA
    from costmodel.specs.tables import is_path as is_path
    from costmodel.specs.tables import read_tables as read_tables
    from costmodel.specs.workloads import load_workload as load_workload
    from costmodel.specs.workloads import model_names as model_names

door.hang(__name__)
