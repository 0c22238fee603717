"""Rows in the collector's style of sources that are in neither file of measurements, each with what an engineer reads
in its words, written down before the reader saw it (`unseen_rows.csv`, column `reads`). No figure in them is measured:
steps are left at ten seconds."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from costmodel.inputs import layers, parameters
from costmodel.measured.rows import Case, Unreadable, case

_ROWS = list(csv.DictReader((Path(__file__).parent / "unseen_rows.csv").read_text().splitlines()))
_OF_PLAN = {
    **dict(tensor="tensor", pipeline="pipeline", context="context", data="data", expert="expert", etp="expert_tensor"),
    **dict(virtual="virtual_stages", mb="microbatch", zero="zero_stage", shard="data_shard", sp="sequence_parallel"),
    **dict(rec="recompute", share="recompute_share", prec="precision", att="attention", grad="gradient_dtype"),
    **dict(opt="optimizer", state="state_dtype", sched="schedule", loss="loss", ctxkind="context_kind"),
    **dict(odata="overlap_data", otensor="overlap_tensor", opipe="overlap_pipeline", oexp="overlap_expert"),
    **dict(offo="offload_optimizer", offw="offload_weights", master="master_weights", disp="dispatcher"),
}
_OPEN = dict(openrec="recompute", openmb="microbatch", openprec="precision", openlay="layout", opensoft="software")


def _of_case(found: Case) -> dict[str, Any]:
    habits = found.cluster.stack.habits
    modules = int(found.facts.get("mtp_layers", 0) or found.facts.get("multi_token", 0))
    return {
        "stack": found.stack,
        "family": found.family,
        "fabric": found.fabric,
        "n": int(found.cluster.accelerators),
        "seq": int(found.workload.sequence),
        "batch": int(found.workload.batch),
        "L": layers(found.workload) - modules,
        "mtp": modules > 0,
        "params": parameters(found.workload) / 1e9,
        "link": found.cluster.tiers[-1].bandwidth_bytes_per_s / 1e9,
        "offa": int(habits.offloaded_activations > 0),
        "graphs": habits.captured,
        "captured_it": habits.captured_iteration,
        "compiled": not habits.eager,
    } | {name: mark in found.open for name, mark in _OPEN.items()}


def _is(have: Any, want: Any) -> bool:
    if isinstance(want, list):
        return have in want
    if isinstance(want, float):
        return math.isclose(have, want, rel_tol=0.06)
    return have == want


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row["source"])
def test_what_a_row_says_is_read(row):
    own = {name: cell for name, cell in row.items() if name != "reads"}
    want, found = json.loads(row["reads"]), case(own)
    assert isinstance(found, Unreadable) == bool(want.pop("refused", False)), row["notes"]
    if isinstance(found, Case):
        have = {name: getattr(found.plan, field) for name, field in _OF_PLAN.items()} | _of_case(found)
        assert {name: have[name] for name, value in want.items() if not _is(have[name], value)} == {}, row["notes"]
