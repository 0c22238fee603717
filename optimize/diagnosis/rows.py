"""One measured row, explained as any plan is: what was read off it, what was assumed, and every term of its step."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from costmodel.measured import COLUMN_WORDS, Case, Fitted, Unreadable, alternatives, posterior, settle
from optimize.diagnosis.explain import Explanation, explain_inputs, explanation_json
from optimize.diagnosis.inputs import Inputs
from optimize.diagnosis.predict import Prediction, predict, with_stack
from optimize.status import CommandError, Status

_ASIDE = ("id", "source", "source_ref", "trust", "oom", "flops_convention", "notes")


class ExplainedRow(NamedTuple):
    """A row, its prediction, and the same step term by term."""

    number: int  # from 1, the line after the header
    row: Case
    prediction: Prediction
    explanation: Explanation

    @property
    def cells(self) -> dict[str, str]:
        """What the row prints of itself, by column; outcomes, sources and notes aside."""
        given = {name: (self.row.row.get(name) or "").strip() for name in COLUMN_WORDS if name not in _ASIDE}
        return {name: cell for name, cell in given.items() if cell and not name.startswith("measured")}

    @property
    def readings(self) -> int:
        """How many microbatches the prediction is a mean of, because the row leaves them open."""
        return len(alternatives(self.row))


def explain_row(
    rows: Sequence[Case | Unreadable],
    number: int,
    stack: Mapping[str, Any] | None = None,
    fitted: Fitted | None = None,
) -> ExplainedRow:
    """Row `number`, whose step is the one that `predict` gives (of several readings of an open row, the first)."""
    if not 1 <= number <= len(rows):
        allowed = f"a row from 1 to {len(rows)}" if rows else "a table with rows"
        raise CommandError(Status.bad_input, f"command line: `explain` is {number}; expected {allowed}")
    row = rows[number - 1]
    if isinstance(row, Unreadable):
        raise CommandError(Status.infeasible, f"row {number}: {row.reason}")
    settled = settle([with_stack(each, stack or {}) for each in posterior.with_constants([row], fitted)])[0]
    explanation = explain_inputs(_inputs(settled, number), checked=False)
    return ExplainedRow(number, settled, predict([row], stack, fitted)[0], explanation)


def _inputs(row: Case, number: int) -> Inputs:
    """What `explain` takes; counts as the integers that they are."""
    model = row.row.get("model") or "row"
    sizes = {name: int(getattr(row.workload, name)) for name in ("batch", "sequence")}
    return Inputs(
        workload=dataclasses.replace(row.workload, name=model, **sizes),
        cluster=dataclasses.replace(row.cluster, accelerators=int(row.cluster.accelerators)),
        plan=row.plan,
        model=model,
        cluster_from=row.cluster.name,
        plan_from=f"row {number}",
        software_named=True,
    )


def explained_row_json(explained: ExplainedRow) -> dict[str, Any]:
    """The answer of `explain`, with the row that it was asked for."""
    row = {
        "number": explained.number,
        "read": explained.cells,
        "words": dict(explained.row.facts),
        "assumed": list(explained.row.assumed),
        "predicted": dataclasses.asdict(explained.prediction),
    }
    return explanation_json(explained.explanation) | {"row": row}
