"""The probability that a plan fits: against draws, against all plans of a lattice, and off at one half."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import norm, t

import costmodel
from costmodel.evaluators import evaluate, memory_by_stage, prepare
from costmodel.exact import Exact
from costmodel.formulas import cost, parts, peak
from costmodel.inputs import SOFTWARE, Plan, Stack
from costmodel.measured import evaluated, fits_probability, logged_bytes, memory_errors, memory_scatter, with_margin
from costmodel.measured.fit import shipped
from costmodel.measured.memory_scatter import errors_elsewhere, scale_of_failures, spare_logs
from optimize.diagnosis import explain, validate
from optimize.lattice import lattice
from optimize.plans import find_in_lattice
from tests.support import builders
from tests.support.builders import small_decoder
from tests.support.row_by_hand import read

LOG_SD = 0.1
FIXED = {"precision": "bf16", "schedule": "one_f_one_b", "context": 1, "microbatch": 2, "sequence_parallel": False}
SEM = Exact(math)


def machine(accelerators: int = 8, hbm_bytes: float = 80 * 2**30, log_sd: float = LOG_SD):
    """The round cluster, whose software's memory is known to a tenth."""
    found = builders.cluster(accelerators, stack=Stack(memory_log_sd=log_sd))
    return dataclasses.replace(found, accelerator=dataclasses.replace(found.accelerator, hbm_bytes=hbm_bytes))


@pytest.mark.parametrize("probability", [0.2, 0.5, 0.9, 0.99])
def test_a_plan_at_the_limit_fits_as_often_as_was_asked(probability):
    """A plan that needs all of the memory with its margin, on 100,000 machines whose needs are drawn."""
    where = with_margin(machine(), probability)
    peak_bytes = where.accelerator.hbm_bytes / where.stack.memory_margin
    needs = peak_bytes * np.exp(LOG_SD * np.random.default_rng(0).standard_normal(100_000))
    assert np.mean(needs <= where.accelerator.hbm_bytes) == pytest.approx(probability, abs=0.005)
    assert fits_probability(peak_bytes, where) == pytest.approx(probability, rel=1e-12)


def test_one_half_is_the_prediction_itself():
    assert with_margin(machine(), 0.5).stack.memory_margin == 1.0
    assert with_margin(with_margin(machine(), 0.99), 0.5) == machine()
    assert (fits_probability(79e9, machine(hbm_bytes=80e9, log_sd=0.0)), fits_probability(1e9, machine())) == (1.0, 1.0)
    assert fits_probability(81e9, machine(hbm_bytes=80e9, log_sd=0.0)) == 0.0


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, math.nan])
def test_no_certainty(probability):
    with pytest.raises(ValueError, match=r"`margin` is .*; expected a probability between 0 and 1"):
        with_margin(machine(), probability)


def test_what_a_search_compares_has_the_margin_and_what_is_told_has_not():
    plan, where = Plan(data=2, pipeline=4), with_margin(machine(), 0.9)
    workload, cluster, point = prepare(small_decoder(layers=16), where, plan)
    plain = parts(*prepare(small_decoder(layers=16), machine(), plan), SEM).memory.peak_bytes
    margin = where.stack.memory_margin
    assert margin == pytest.approx(math.exp(1.2815515655446004 * LOG_SD), rel=1e-12)
    assert cost(workload, cluster, point, SEM).peak_bytes == margin * plain
    assert explain(small_decoder(layers=16), where, plan).fullest.peak_bytes == pytest.approx(plain, rel=1e-12)
    needed = margin * plain
    for hbm_bytes, fits in ((1.001 * needed, True), (0.999 * needed, False)):
        tight = with_margin(machine(hbm_bytes=hbm_bytes), 0.9)
        assert evaluate(small_decoder(layers=16), tight, plan).fits == fits
        assert validate(small_decoder(layers=16), tight, plan).fits == fits
        assert explain(small_decoder(layers=16), tight, plan).fits == fits


@pytest.fixture(scope="module")
def tight():
    """A machine on which half of the plans fit as predicted, and fewer with a margin."""
    workload, where = small_decoder(layers=8, batch=16), machine()
    whole = lattice(workload, where, FIXED)
    stages = [memory_by_stage(workload, where, whole.plan(i)) for i in range(len(whole))]
    peaks = np.array([max(peak(stage, SEM) for stage in each) for each in stages])
    return workload, machine(hbm_bytes=float(np.median(peaks))), whole, peaks


@pytest.mark.parametrize("margin", [0.5, 0.9])
def test_the_best_plan_is_the_best_of_those_that_fit_as_surely(tight, margin):
    """Against every plan of the lattice, its stages one by one: bounds and checks hold at the same limit."""
    workload, where, whole, peaks = tight
    fitting = [i for i in range(len(whole)) if fits_probability(peaks[i], where) >= margin]
    steps = [evaluate(workload, where, whole.plan(i)).step_s for i in fitting]
    answer = find_in_lattice(workload, where, fixed=FIXED, margin=margin)
    assert answer.value == pytest.approx(min(steps), rel=1e-9)
    assert answer.gap == pytest.approx(0.0, abs=1e-6)
    assert answer.plans[0].validation.fits_probability >= margin
    assert answer.plans[0].peak_bytes <= where.accelerator.hbm_bytes * math.exp(-LOG_SD * (1.28 if margin > 0.5 else 0))


def _above(*logs: float):
    """Rows of two classes of software whose memory is so much above the prediction, in logarithms."""
    usual = {"global_batch_sequences": "512", "hardware": "H100-80GB-SXM", "precision": "bf16"}
    named = [usual | {"source": source} for source in ("Megatron-Core table", "nanotron")]
    rows = [read(**each, micro_batch=str(n)) for each in named for n in range(1, 9)]
    predicted = logged_bytes(rows, evaluated(rows))
    above = np.repeat(logs, len(rows) // 2)
    return (
        rows,
        above,
        [
            dataclasses.replace(row, measured_mem_bytes=float(size_bytes))
            for row, size_bytes in zip(rows, predicted * np.exp(above), strict=True)
        ],
    )


def test_how_far_memory_is_off_is_learnt_by_software():
    """Errors of .15 and .25, and what other software would leave: medians over that of a normal
    distribution, of each source their mean logarithm, drawn by two sources towards that of both, with Student's t."""
    rows, above, known = _above(0.15, 0.25)
    found, errors = memory_errors(known)
    np.testing.assert_allclose(errors, above, rtol=1e-12)
    elsewhere = np.abs(errors_elsewhere(found, errors)).reshape(2, -1)
    own = np.mean(np.log(np.stack([[0.15, 0.25], np.median(elsewhere, axis=1)]) / 0.6745), axis=0)
    whole = np.mean(own)
    tails = {sources: t.ppf(0.9, 4 + sources) / norm.ppf(0.9) for sources in (0, 1)}
    drawn = np.exp((own + 2 * whole) / 3) * tails[1]
    expected = dict(zip(("megatron-core", "nanotron"), drawn, strict=True)) | {"": np.exp(whole) * tails[0]}
    assert memory_scatter(known) == pytest.approx(expected, rel=1e-9)
    assert memory_scatter(rows) == {}


@pytest.mark.parametrize("true", [0.1, 0.2])
@pytest.mark.parametrize("usual", [0.1, 0.2])
def test_runs_that_failed_say_how_far_memory_is_off(true, usual):
    """Drawn: spare logarithms near the limit, one run in ten that fails of something else. Few runs say little."""
    random = np.random.default_rng(1)
    spare = np.concatenate([random.uniform(-0.5, 0.5, 20_000), random.uniform(1.0, 2.0, 20_000)])
    needed = true * random.normal(size=len(spare)) < spare
    ran = (needed | (random.uniform(size=len(spare)) < 0.01)) & (random.uniform(size=len(spare)) < 0.9)
    assert scale_of_failures(usual, spare[ran], spare[~ran]) == pytest.approx(true, rel=0.05)
    few = spare[::4000], ran[::4000]
    assert scale_of_failures(usual, few[0][few[1]], few[0][~few[1]]) == pytest.approx(usual, rel=0.2)


def test_failures_are_of_the_class_that_they_happened_to():
    _, _, known = _above(0.15, 0.25)
    plain = memory_scatter(known)
    failed = [dataclasses.replace(row, measured_mem_bytes=None) for row in known if row.stack == "nanotron"]
    assert (spare_logs(failed) > 0).all()
    assert memory_scatter(known, []) == plain
    found = memory_scatter(known, failed)
    assert found["nanotron"] > plain["nanotron"]
    assert {name for name in plain if found[name] != plain[name]} == {"nanotron"}


def test_software_that_nobody_knows_is_the_mean_over_the_other_classes():
    """Of one row of nanotron's the classes are read by name, but with nanotron's plan and constants."""
    _, _, known = _above(0.1, 0.2)
    row = known[-1]
    logs = []
    for name in ("megatron-core", "fsdp", "deepspeed"):
        stack = dataclasses.replace(row.cluster.stack, habits=SOFTWARE[name], **dict(SOFTWARE[name].memory))
        other = dataclasses.replace(row, cluster=dataclasses.replace(row.cluster, stack=stack))
        logs.append(np.log(row.measured_mem_bytes / logged_bytes([other], evaluated([other]))[0]))
    assert np.ptp(logs) > 0.1
    assert errors_elsewhere([row], np.array([0.2]))[0] == pytest.approx(np.mean(logs), rel=1e-9)
    compiled = dataclasses.replace(row, stack="xla")
    assert errors_elsewhere([compiled], np.array([0.3]))[0] == 0.3


def test_named_clusters_have_what_was_learnt():
    """The shipped tables, by software, and that of all where one was never measured."""
    for name, software in (("h100", "megatron-core"), ("a100-80gb", "megatron-2022"), ("h100", "fsdp")):
        stack = costmodel.load_cluster(name, software=software).stack
        table = shipped().memory
        assert stack.memory_log_sd == table.get(software, table[""]) > 0.03
        assert stack.memory_margin == 1.0
