"""The `accuracy` experiment: its scores against the measurements' own scorer, its baseline, and a whole run."""

import csv
import importlib.util
import json
import math

import numpy as np
import pytest

from costmodel import specs
from costmodel.measured.rows import Case, read_cases
from experiments.accuracy import experiment as accuracy
from experiments.accuracy import terms
from experiments.accuracy.scoring import Scored, score
from tests.support import SHARED

HEADER = ("predicted_step_s", "predicted_step_s_p10", "predicted_step_s_p90", "predicted_mem_bytes", "fits")
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the measurements are not beside the repository")


def _row(**more: str) -> dict[str, str]:
    own = dict.fromkeys(("model", "hardware", "gpus", "seq", "precision", "global_batch_sequences"), "1")
    return {"source": "one", "oom": "0", **own, **more}


def test_errors_of_known_predictions():
    logs = [0.1, -0.2, 0.3, -0.4, 0.5, 0.6]
    rows = [Scored(_row(), 2.0, 2.0 * math.exp(x), 1.0, 2.5) for x in logs]
    figures = score(rows)["groups"]["one"]
    assert figures["rows"] == 6
    assert figures["median"] == pytest.approx(0.35)
    assert figures["p90"] == pytest.approx(0.6)
    assert figures["bias"] == pytest.approx(0.2)
    assert figures["inside"] == 1.0


def test_ranks_of_a_known_sweep():
    """Five layouts, one pair in the wrong order: tau is (9 - 1) / 10; the one predicted fastest takes twice as long."""
    measured, predicted = (1.0, 2.0, 3.0, 4.0, 5.0), (2.0, 1.0, 3.0, 4.0, 5.0)
    times = list(zip(measured, predicted, strict=True))
    found = score([Scored(_row(tp=str(i)), m, p) for i, (m, p) in enumerate(times)])["rank"]["one"]
    assert found == {"sweeps": 1, "tau": pytest.approx(0.8), "regret": pytest.approx(1.0)}
    assert score([Scored(_row(), m, p) for m, p in times])["rank"] == {}  # five runs of one layout are no sweep


def test_small_sources_are_one_group_and_nanotron_stands_apart():
    rows = [Scored(_row(source=f"small {i}"), 1.0, math.exp(0.1)) for i in range(4)]
    rows += [Scored(_row(source="HF nanotron"), 1.0, math.e) for _ in range(6)]
    found = score(rows)
    assert set(found["groups"]) == {"sources with fewer than 6 rows", "HF nanotron"}
    assert found["headline"]["median"] == pytest.approx(0.1)


@needs_shared
def test_scores_are_those_of_the_measurements_own_scorer():
    with open(specs.DATA / "published.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    scored = accuracy._scored(read_cases(specs.DATA / "published.csv"), {})
    told = [
        dict(
            zip(
                HEADER,
                (s.predicted_s or "", s.p10_s or "", s.p90_s or "", s.predicted_bytes or "", int(bool(s.fits))),
                strict=True,
            )
        )
        for s in scored
    ]
    spec = importlib.util.spec_from_file_location("score", SHARED / "tools" / "score.py")
    assert spec is not None
    assert spec.loader is not None
    scorer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scorer)
    theirs, ours = scorer.score(rows, told), score(scored)
    for group, figures in theirs["groups"].items():
        for key in ("median", "p90", "bias"):
            assert ours["groups"][group][key] == pytest.approx(figures[key], abs=2e-4), (group, key)
    same = [ours["groups"][group]["median"] for group in theirs["groups"]]  # ours also holds rates read as times
    assert np.mean(same) == pytest.approx(theirs["headline"]["median"], abs=2e-4)


def test_the_baseline_is_six_flop_a_parameter_and_token():
    """GPT 22B of Korthikanti et al., its attention by what the mask leaves: 6 N plus 6 L h s a token (baseline.py)."""
    case = next(c for c in read_cases(specs.DATA / "published.csv") if isinstance(c, Case))
    assert case.row["model"] == "GPT 22B"
    layers, hidden, vocabulary, sequence = 48, 6144, 51200, 2048
    flop = 6 * (12 * layers * hidden**2 + vocabulary * hidden) + 6 * layers * hidden * sequence
    expected = flop * 4 * sequence / (8 * 312e12 * 0.34)
    assert accuracy._one_constant_s(case) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("term", terms.DROPPED)
def test_a_dropped_term_makes_no_row_slower(term):
    """But narrow formats at the rate of 16 bits, which make rows in 8 bits slower and change no other."""
    cases = [c for c in read_cases(specs.DATA / "published.csv") if isinstance(c, Case)][::9]
    whole = terms.evaluated(cases).step_s
    ratio = terms.without(cases, term) / whole
    assert np.any(np.abs(ratio - 1) > 1e-6) or term in ("congestion", "contention", "host work")
    assert np.all(ratio >= 1 - 1e-12) if term.startswith("8-") else np.all(ratio <= 1 + 1e-9)


def test_a_run_writes_scores_tables_and_figures(tmp_path):
    results = accuracy.run(tmp_path, lambda _: None, measurements=str(tmp_path / "absent"), leave_out=False)
    assert set(results) == {"published"}
    assert results["published"]["headline"]["median"] < results["published"]["baseline"]["headline"]["median"]
    assert len(results["published"]["worst"]) == 20
    assert all(row["reason"] for row in results["published"]["worst"])
    assert len(accuracy.answer(results)) == 3
    assert len(accuracy.tables(results)) == 4  # headlines, sources, terms, worst rows
    json.dumps(results)
    assert {"scatter_published.png", "groups_published.svg", "predictions_published.csv"} <= {
        path.name for path in tmp_path.iterdir()
    }
