"""Adapting to a user's rows, reading nccl-tests, and the probability that one plan beats another."""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest

from costmodel import specs
from costmodel.inputs.plan import Plan
from costmodel.measured import posterior
from costmodel.measured.calibrate import Update, calibrate
from costmodel.measured.collective_fit import CollectiveRow, times_s
from costmodel.measured.comparison import compare
from costmodel.measured.deviations import as_deviations, deviated, with_deviations
from costmodel.measured.fit.evaluate import best_free, evaluator
from optimize import cli
from tests.support.measured_rows import made, with_times

PLANS = ({}, {"tp": 8, "dp": 8}, {"pp": 4, "dp": 8}, {"tp": 1, "pp": 2, "dp": 32}, {"tp": 4, "dp": 16}, {"seq": 4096})
ROWS = [made(source="NeMo", **cells) for cells in PLANS]


_SLOWER = ("attention_ceiling", "attention_2_ceiling", "matmul_ceiling")


def measured_elsewhere():
    """Times of a stack whose attention and matmuls are a third slower than the shipped ones."""
    update = Update(ROWS, posterior.shipped())
    free = update.free(np.zeros(update.size))
    slower = {name: free[name] - 1.0 * (name in _SLOWER) for name in free}
    return with_times(ROWS, update.evaluator.log_times(slower))


def test_three_rows_teach_the_other_three():
    rows = measured_elsewhere()
    found = calibrate(rows[:3])
    assert np.median(found.before) > 0.2
    assert np.median(found.after) < 0.5 * np.median(found.before)
    update = Update(rows[3:], posterior.shipped())
    before = np.abs(update.residuals(np.zeros(update.size)))
    slopes = Update(rows[:3], posterior.shipped())
    after = np.abs(update.residuals(slopes.solve(np.ones(3))[0]))
    assert after.max() < 0.4 * before.min()
    assert found.stack.attention_ceiling < posterior.with_constants(rows[:1])[0].cluster.stack.attention_ceiling
    assert found.problems == ()


def test_jacobian_of_the_update():
    update, rng = Update(measured_elsewhere(), posterior.shipped()), np.random.default_rng(0)
    u, direction = rng.normal(0, 0.3, update.size), rng.normal(0, 1, update.size)
    _, jacobian = update.linearised(u)
    slope = (update.residuals(u + 1e-6 * direction) - update.residuals(u - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(slope, jacobian @ direction, rtol=1e-4, atol=1e-6)


def test_what_cannot_be_true_is_told():
    rows = measured_elsewhere()
    too_fast = dataclasses.replace(rows[1], measured_step_s=1e-3)
    twice = dataclasses.replace(rows[0], measured_step_s=2.0 * (rows[0].measured_step_s or 0.0))
    found = calibrate([rows[0], too_fast, twice, *rows[2:], made()])
    told = "\n".join(found.problems)
    assert found.used == (0, 2, 3, 4, 5, 6)
    assert "row 2 is left out: it is faster than the accelerators' peak" in told
    assert "row 8 is left out: it has no measured time" in told
    assert "rows 1, 3 are the same run" in told
    with pytest.raises(ValueError, match="no measured time"):
        calibrate([made()])


def uniformly_slower(rows, factor):
    """Times of the shipped constants, all of them longer by one factor."""
    update = Update(rows, posterior.shipped())
    return with_times(rows, update.evaluator.log_times(update.free(np.zeros(update.size))) + math.log(factor))


def test_a_uniformly_slow_machine_is_one_factor():
    """The common factor takes most of it (.63 of its logarithm; the rest moves constants), rows to come all of it."""
    rows = uniformly_slower(ROWS, 1.25)
    found = calibrate(rows[:3])
    assert 0.5 < math.log(found.common) / math.log(1.25) <= 1
    assert found.fitted is not None
    after = np.abs(left_errors(rows[3:], found.fitted))
    assert after.max() < 0.05 * math.log(1.25)


def left_errors(rows, fitted):
    """Log of what a fit predicts over what was measured."""
    log_times = evaluator(fitted, rows).log_times(best_free(fitted, rows))
    return log_times - np.log([row.measured_step_s for row in rows])


def test_every_accelerator_moves_from_its_own_constants():
    """Three rows of one accelerator, all slower; predictions of another one become slower too, and stay its own."""
    rows = uniformly_slower(ROWS, 1.25)
    found = calibrate(rows[:3]).fitted
    assert found is not None
    others = uniformly_slower(
        [made(source="NeMo", hardware="B200", tp=1, dp=64), made(source="NeMo", hardware="B200")], 1
    )
    assert left_errors(others, found) == pytest.approx(np.full(2, math.log(1.25)), abs=0.1)


def test_intervals_narrow_where_rows_were_given():
    rows = uniformly_slower(ROWS, 1.1)
    before = posterior.log_sd(rows[3:])
    one, three = (posterior.log_sd(rows[3:], calibrate(rows[:n]).fitted) for n in (1, 3))
    assert (one < before).all()
    assert (three < one + 1e-9).all()
    elsewhere = [made(source="NeMo", hardware="MI300X", interconnect_note="RoCE")]
    assert posterior.log_sd(elsewhere, calibrate(rows[:3]).fitted)[0] > three.max()


def test_deviations_of_the_file_predict_as_the_update_does(tmp_path):
    rows = measured_elsewhere()
    found = calibrate(rows[:3])
    assert found.fitted is not None
    tables = as_deviations(found.fitted, rows[:3])
    read = with_deviations(tables, "mine.toml")
    np.testing.assert_allclose(left_errors(rows[3:], read), left_errors(rows[3:], found.fitted), atol=5e-3)
    assert posterior.log_sd(rows[:1], read)[0] == pytest.approx(tables["log_sd"]["h100"], rel=0.05)
    base = specs.load_cluster("h100")
    own = deviated(base.stack, tables, specs.constant_group("h100", base.stack.software))
    case = posterior.with_constants([made(source="NeMo", hardware="H100")], found.fitted)[0]
    assert own.attention_ceiling == pytest.approx(case.cluster.stack.attention_ceiling, rel=1e-3)


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"shared": {"matmul_ceilin": 0.1}}, "`deviations.shared` is 'matmul_ceilin'; expected one of matmul_ceiling"),
        ({"shared": {"kernel_s": "x"}}, "`deviations.shared.kernel_s` is 'x'; expected a number"),
        ({"shard": {}}, "`deviations.shard` is a table; expected tables named shared, log_sd, die"),
        ({"die": {"h100": 1}}, "`deviations.die.h100` is 1; expected a table of constants"),
    ],
)
def test_bad_deviations_are_one_line(tables, told):
    with pytest.raises(specs.SpecError) as error:
        with_deviations(tables, "stack (mine.toml)")
    assert told in str(error.value)


def write_rows(path, rows):
    cells = [{**case.row, "measured_step_s": repr(case.measured_step_s)} for case in rows]
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, cells[0])
        writer.writeheader()
        writer.writerows(cells)


def test_the_file_is_a_cluster_and_a_stack(tmp_path, capsys):
    rows, out = tmp_path / "rows.csv", tmp_path / "mine.toml"
    write_rows(rows, measured_elsewhere()[:3])
    assert cli.run(["calibrate", str(rows), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["used"] == 3
    assert told["error_after"] < told["error_before"]
    cluster = specs.load_cluster(out, accelerators=512)
    first = posterior.with_constants(measured_elsewhere()[:1])[0].cluster
    assert cluster.accelerator == first.accelerator
    assert [t.bandwidth_bytes_per_s for t in cluster.tiers] == [t.bandwidth_bytes_per_s for t in first.tiers]
    assert cluster.stack.attention_ceiling < first.stack.attention_ceiling
    assert specs.load_stack(out)["attention_ceiling"] == cluster.stack.attention_ceiling
    shown = ["explain", "--model", "llama3-8b", "--cluster", str(out), "--accelerators", "64", "--json"]
    assert cli.run(shown) == 0
    assert json.loads(capsys.readouterr().out)["step_s"] > 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["calibrate", "--out", "x.toml"], "`rows` is missing"),
        (["calibrate", "rows.csv"], "`out` is missing"),
        (["calibrate", "none.csv", "--out", "x.toml"], "no such file"),
    ],
)
def test_bad_words_are_one_line(words, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.run(words) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def nccl_output(rows):
    head = "# nThread 1 nGpus 1\n# Collective test starting: all_reduce_perf\n"
    ranks = "".join(f"#  Rank {i:2d} Group  0 Pid 1 on node device {i} NVIDIA H100\n" for i in range(rows[0].ranks))
    lines = (
        f"{r.payload_bytes:12.0f} {r.payload_bytes / 4:12.0f}   float   sum   -1 {1e6 * r.time_s:9.3f} 1.0 2.0  0 "
        f"{1e6 * r.time_s:9.3f} 1.0 2.0 0\n"
        for r in rows
    )
    return head + ranks + "#  size count type redop root time algbw busbw #wrong\n" + "".join(lines)


def test_output_of_nccl_tests_is_read(tmp_path, capsys):
    cluster = specs.load_cluster("h100")
    slower = dataclasses.replace(cluster.stack, link_ceiling=0.5)
    rows = [CollectiveRow(op="all_reduce", payload_bytes=2.0**k, ranks=8, time_s=1.0) for k in range(10, 34, 2)]
    rows = [dataclasses.replace(r, time_s=t) for r, t in zip(rows, times_s(rows, cluster, slower), strict=True)]
    path, out = tmp_path / "log.txt", tmp_path / "mine.toml"
    path.write_text(nccl_output(rows))
    assert cli.run(["calibrate", str(path), "--out", str(out)]) == 2
    assert "`cluster` is missing" in capsys.readouterr().err
    assert cli.run(["calibrate", str(path), "--cluster", "h100", "--out", str(out)]) == 0
    assert specs.load_cluster(out).stack.link_ceiling == pytest.approx(0.5, rel=0.05)
    path.write_text(nccl_output(rows).replace("# ", "! "))
    assert cli.run(["calibrate", str(path), "--cluster", "h100", "--out", str(out)]) == 2
    assert "names 0 ranks" in capsys.readouterr().err


def job(cluster="h100", **plan):
    workload = specs.load_workload("llama3-8b", batch=512)
    return workload, specs.load_cluster(cluster, accelerators=64), Plan(**plan)


def test_what_both_share_cancels():
    plain, deeper = job(data=32, tensor=2), job(data=16, tensor=2, pipeline=2)
    itself = compare(plain, plain)
    assert (itself.log_ratio, itself.probability_faster) == (0.0, 0.5)
    found = compare(plain, deeper)
    assert found.log_sd < 0.6 * math.hypot(*posterior.log_sd([ROWS[0], ROWS[2]]))
    assert compare(deeper, plain).probability_faster == pytest.approx(1.0 - found.probability_faster)
    assert (found.log_ratio > 0) == (found.probability_faster > 0.5)
    wide = compare(plain, job("a100-80gb", data=32, tensor=2))
    assert wide.log_sd > found.log_sd
    assert wide.probability_faster > 0.99
