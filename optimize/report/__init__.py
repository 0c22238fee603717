"""Everything for people: text, tables and figures."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.report import figures as figures
    from optimize.report import figures_design as figures_design
    from optimize.report import figures_plan as figures_plan
    from optimize.report import report as report
    from optimize.report.figures import BLACK as BLACK
    from optimize.report.figures import PALETTE as PALETTE

door.hang(__name__)
