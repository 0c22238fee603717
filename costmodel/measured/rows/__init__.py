"""Rows of measured runs: from columns to workloads, clusters and plans."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.measured.rows.batches import ALLOCATED as ALLOCATED
    from costmodel.measured.rows.batches import DEVICE as DEVICE
    from costmodel.measured.rows.batches import FIRST as FIRST
    from costmodel.measured.rows.batches import FULLEST as FULLEST
    from costmodel.measured.rows.batches import LAST as LAST
    from costmodel.measured.rows.batches import TENSORS as TENSORS
    from costmodel.measured.rows.batches import Batch as Batch
    from costmodel.measured.rows.batches import Figures as Figures
    from costmodel.measured.rows.batches import evaluated as evaluated
    from costmodel.measured.rows.batches import shown_bytes as shown_bytes
    from costmodel.measured.rows.batches import stacked as stacked
    from costmodel.measured.rows.cases import case as case
    from costmodel.measured.rows.cases import read_cases as read_cases
    from costmodel.measured.rows.columns import lenient as lenient
    from costmodel.measured.rows.flop_rates import timed_by_rate as timed_by_rate
    from costmodel.measured.rows.hardware import known_cluster as known_cluster
    from costmodel.measured.rows.headers import COLUMN_WORDS as COLUMN_WORDS
    from costmodel.measured.rows.layouts import OPEN_LAYOUT as OPEN_LAYOUT
    from costmodel.measured.rows.readings import alternatives as alternatives
    from costmodel.measured.rows.readings import classes_on as classes_on
    from costmodel.measured.rows.readings import doubts as doubts
    from costmodel.measured.rows.readings import in_any_software as in_any_software
    from costmodel.measured.rows.readings import in_other_software as in_other_software
    from costmodel.measured.rows.readings import lightened as lightened
    from costmodel.measured.rows.readings import settle as settle
    from costmodel.measured.rows.records import Case as Case
    from costmodel.measured.rows.records import Unreadable as Unreadable

door.hang(__name__)
