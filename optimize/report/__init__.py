"""Everything for people: text, tables and figures. And the files and JSON of an answer."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.report.against import show_comparison as show_comparison
    from optimize.report.counts import near_words as near_words
    from optimize.report.counts import show_counts as show_counts
    from optimize.report.counts import show_launchers as show_launchers
    from optimize.report.counts import show_notes as show_notes
    from optimize.report.design import show_design as show_design
    from optimize.report.drawing import BLACK as BLACK
    from optimize.report.drawing import MARKERS as MARKERS
    from optimize.report.drawing import PALETTE as PALETTE
    from optimize.report.drawing import files_of as files_of
    from optimize.report.drawing import log_axis as log_axis
    from optimize.report.explain import show_explanation as show_explanation
    from optimize.report.figures_design import draw_design as draw_design
    from optimize.report.figures_explain import draw_comparison as draw_comparison
    from optimize.report.figures_explain import draw_explanation as draw_explanation
    from optimize.report.figures_plan import draw_counts as draw_counts
    from optimize.report.figures_plan import draw_plans as draw_plans
    from optimize.report.figures_predict import draw_predictions as draw_predictions
    from optimize.report.files import check_directory as check_directory
    from optimize.report.files import print_json as print_json
    from optimize.report.files import write as write
    from optimize.report.lists import show_clusters as show_clusters
    from optimize.report.lists import show_models as show_models
    from optimize.report.notebook import as_figure as as_figure
    from optimize.report.notebook import as_html as as_html
    from optimize.report.notebook import as_text as as_text
    from optimize.report.page import page as page
    from optimize.report.page import page_of as page_of
    from optimize.report.plan import show_plans as show_plans
    from optimize.report.rows import show_columns as show_columns
    from optimize.report.rows import show_predictions as show_predictions
    from optimize.report.rows import show_row as show_row
    from optimize.report.screen import columns_for as columns_for
    from optimize.report.screen import kept as kept
    from optimize.report.words import constant_amount as constant_amount
    from optimize.report.words import term_words as term_words

door.hang(__name__)
