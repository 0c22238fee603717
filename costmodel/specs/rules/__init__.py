"""The rules of plans: each one mask, for one plan as for arrays of them, and one sentence for a plan that breaks it."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.specs.rules.demands import Columns as Columns
    from costmodel.specs.rules.demands import Demands as Demands
    from costmodel.specs.rules.demands import Rule as Rule
    from costmodel.specs.rules.demands import demands as demands
    from costmodel.specs.rules.placement import groups as groups
    from costmodel.specs.rules.violations import all_rules as all_rules
    from costmodel.specs.rules.violations import check_plan as check_plan
    from costmodel.specs.rules.violations import columns as columns
    from costmodel.specs.rules.violations import kept as kept
    from costmodel.specs.rules.violations import unsound_fields as unsound_fields
    from costmodel.specs.rules.violations import violations as violations

door.hang(__name__)
