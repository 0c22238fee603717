"""Sources left out of the fit, and what three rows of them do: small tables made up from the model itself."""

import csv
import math

import numpy as np
import pytest

from costmodel.measured import posterior
from costmodel.measured.fit import best_free, evaluator
from costmodel.specs import SpecError
from experiments.accuracy import few_rows
from experiments.accuracy.left_out import fits_without
from experiments.calibrate_defaults import experiment as calibrate_defaults
from tests.support.measured_rows import VARIED, made, with_times

COLUMNS = ("source", "hardware", "kind", "op", "dtype", "shape_or_bytes", "value", "unit")
KERNEL = ("book", "A100-80GB-SXM", "gemm", "max achievable matmul", "bf16", "m8192 n8192 k8192", "255", "TFLOP/s")


def shipped_times(cases):
    """Logarithms of the seconds that the shipped constants give."""
    fitted = posterior.shipped()
    return evaluator(fitted, cases).log_times(best_free(fitted, cases))


def test_each_source_has_a_fit_that_saw_no_row_of_it(tmp_path):
    """One of two sources is twice as slow: the fit without it is faster than the one that it alone decides."""
    cases = [made(source=f"NeMo {i}", **cells) for i in range(2) for cells in VARIED[:2]]
    slow = np.array([case.source == "NeMo 0" for case in cases])
    cases = with_times(cases, shipped_times(cases) + math.log(2.0) * slow)
    with open(tmp_path / "microbenchmarks.csv", "w", newline="") as file:
        csv.writer(file).writerows((COLUMNS, KERNEL))
    found = fits_without(cases, tmp_path)
    assert set(found) == {"NeMo 0", "NeMo 1"}
    slow_cases = [case for case, own in zip(cases, slow, strict=True) if own]
    times = {
        source: evaluator(fitted, slow_cases).log_times(best_free(fitted, slow_cases))
        for source, fitted in found.items()
    }
    assert (times["NeMo 0"] < times["NeMo 1"] - 0.1).all()


def test_three_rows_of_a_slow_machine_are_worth_one_factor(monkeypatch):
    monkeypatch.setattr(few_rows, "DRAWS", 2)
    cases = [made(source="somebody", **cells) for cells in (*VARIED[:4], *VARIED[:4], VARIED[4])]
    cases = with_times(cases, shipped_times(cases) + 0.3)
    few = [made(source="few")]
    apart = [made(source="apart", **cells) for cells in VARIED[:4]] * 3
    found = few_rows.after_rows([*cases, *with_times(few, shipped_times(few)), *apart], {}, "apart")
    assert set(found) == {"somebody"}
    own = found["somebody"]
    assert abs(own["without"] - 0.3) < 1e-6
    assert own["one_factor"] < 1e-6
    assert own["after"] < 0.1
    assert 0.0 <= own["inside"] <= 1.0


def test_nothing_is_told_of_sources_that_were_not_left_out():
    fit = [{"source": "a", "rows": 2, "median": 0.1, "p90": 0.2, "bias": 0.0}]
    results = {"provenance": {"rows": 2, "sources": ["a"], "kernels": 1}, "fit": fit}
    assert calibrate_defaults.answer(results)[-1] == "No source was left out of the fit, as was asked."
    assert len(calibrate_defaults.tables(results)[0].columns) == 5
    left = [{**fit[0], "median": 0.3}]
    results |= {"left_out": left, "class_left_out": left}
    assert "the worst source is a, at 0.30" in calibrate_defaults.answer(results)[-1]
    assert len(calibrate_defaults.tables(results)[0].columns) == 11


def test_scatter_inside_the_fit_is_never_shipped(tmp_path):
    with pytest.raises(SpecError, match=r"`--write` with `--no-leave-out`.*expected one of them alone"):
        calibrate_defaults.run(tmp_path, print, leave_out=False, write=True)
    assert not list(tmp_path.iterdir())
