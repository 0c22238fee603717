"""Published measurements: each row of a table mapped to workload, cluster, plan and facts, and evaluated in batches."""

from costmodel.rows.batches import Batch as Batch
from costmodel.rows.batches import Figures as Figures
from costmodel.rows.batches import evaluated as evaluated
from costmodel.rows.batches import stacked as stacked
from costmodel.rows.cases import Case as Case
from costmodel.rows.cases import Unreadable as Unreadable
from costmodel.rows.cases import case as case
from costmodel.rows.cases import read_cases as read_cases
from costmodel.rows.readings import alternatives as alternatives
from costmodel.rows.readings import lightened as lightened
from costmodel.rows.readings import settle as settle
