"""The fit: exact slopes, a minimum that is one, known constants found again, and what is kept of it."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel import specs
from costmodel.exact import Exact
from costmodel.formulas import roofline
from costmodel.formulas.cost import cost
from costmodel.formulas.counted import AttentionCount, MatmulCount
from costmodel.inputs.embedding import embed
from costmodel.inputs.plan import Plan
from costmodel.inputs.stack import Habits, Stack
from costmodel.measured import posterior
from costmodel.measured.fit.evaluate import Evaluator, best_free, group, linearised
from costmodel.measured.fit.fitted import Fitted, as_posterior, as_tables, from_files, narrowed
from costmodel.measured.fit.kernels import Kernel, kernels, log_shares
from costmodel.measured.fit.parameters import PARAMETERS, SHARED, SLOW
from costmodel.measured.fit.problem import Problem
from costmodel.measured.fit.regimes import features, fit_weights, likely_slow, slow_probability
from costmodel.measured.fit.scatter import scatter
from costmodel.measured.fit.solve import Loss, solve
from costmodel.measured.fit.train import left_out_errors, of_software, train, without_each
from costmodel.measured.rows.batches import point
from costmodel.specs.stacks import constant_group, constants
from tests.support.measured_rows import VARIED, made, with_times

CASES = [made(**cells) for cells in VARIED]
NANOTRON = [made(source="nanotron", pp=p, dp=32 // p, tp=2) for p in (1, 2, 4, 8)]
ROWS = [
    {"hardware": "H100-80GB-SXM", "kind": "gemm", "op": "cuBLASLt", "dtype": "fp8", "unit": "TFLOP/s",
     "shape_or_bytes": "m8192 n4096 k16384", "value": "1290.1"},
    {"hardware": "A100-80GB-SXM", "kind": "gemm", "op": "max achievable matmul (best shape found)", "dtype": "bf16",
     "unit": "TFLOP/s", "shape_or_bytes": "1024x10240x5120", "value": "271.2"},
    {"hardware": "H100-80GB-SXM", "kind": "attention", "op": "FA2 fwd+bwd causal", "dtype": "fp16/bf16",
     "unit": "TFLOP/s", "shape_or_bytes": "headdim128 seq2048", "value": "265"},
    {"hardware": "H200", "kind": "hbm", "op": "BabelStream triad", "dtype": "", "unit": "TB/s", "shape_or_bytes": "",
     "value": "4.15"},
    {"hardware": "A100-80GB-SXM", "kind": "gemm", "op": "cuBLASLt", "dtype": "fp16", "unit": "TFLOP/s",
     "shape_or_bytes": "m1024 n1024 k1024", "value": "119.4"},
]  # fmt: skip


def problem(cases=CASES, scale=0.08):
    logs = np.linspace(-0.1, 0.1, len(cases)) + 1.0
    return Problem(with_times(list(cases), logs), kernels(ROWS), loss=Loss(scale=scale))


def test_every_parameter_is_a_field_of_the_stack_and_starts_inside_its_range():
    fields = {f.name for f in dataclasses.fields(Stack)}
    assert {p.name for p in PARAMETERS} - fields == {SLOW}
    for p in PARAMETERS:
        assert p.value(p.free(p.centre)) == pytest.approx(p.centre)
        assert not p.share or 0 < p.centre < 1


def test_jacobian_is_the_slope_of_the_residuals():
    posed = problem([*CASES, *NANOTRON])
    posed.evaluator.slow = np.array([c.stack == "nanotron" for c in posed.cases], float)
    rng = np.random.default_rng(0)
    z = rng.normal(0, 0.3, posed.size + len(posed.sources))
    _, jacobian = posed.linearised(z)
    for _ in range(4):
        direction = rng.normal(0, 1, len(z))
        ahead, behind = (posed.residuals(z + side * 1e-6 * direction) for side in (1, -1))
        np.testing.assert_allclose((ahead - behind) / 2e-6, jacobian @ direction, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("rows", "unknowns"), [(30, 5), (4, 12)])
def test_the_solver_finds_the_minimum_of_a_linear_problem(rows, unknowns):
    """Also where the unknowns are more than the rows, which it solves among the rows."""
    rng = np.random.default_rng(1)
    a, b, weights = rng.normal(0, 1, (rows, unknowns)), rng.normal(0, 1, rows), rng.uniform(0.5, 2, rows)
    weights[0] = 0.0
    nearly_normal = Loss(scale=0.5, freedom=1e9)
    found = solve(lambda z: a @ z - b, lambda z: (a @ z - b, a), weights, nearly_normal, np.zeros(unknowns))
    curvature = (a * weights[:, None]).T @ a / 0.25 + np.eye(unknowns)
    exact = np.linalg.solve(curvature, (a * weights[:, None]).T @ b / 0.25)
    np.testing.assert_allclose(found.z, exact, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.curvature, curvature, rtol=1e-6)


def test_an_outlier_loses_its_pull():
    x = np.array([0.0, 0.01, -0.01, 0.02, 3.0])
    found = solve(lambda z: z[0] - x, lambda z: (z[0] - x, np.ones((5, 1))), 5 * np.ones(5), Loss(), np.zeros(1))
    assert abs(found.z[0]) < 0.02


def test_known_constants_are_found_again():
    """Rows made by the model itself, with one constant of one class moved: the fit moves that one."""
    cases = [made(source="NeMo", **cells) for cells in VARIED[:5]] + [made(**cells) for cells in VARIED[5:9]]
    evaluator = Evaluator(cases)
    free = {p.name: evaluator.centre(p) for p in PARAMETERS}
    core = np.array([c.stack == "megatron-core" for c in cases])
    moved = dict(free, attention_ceiling=free["attention_ceiling"] - 0.6 * core)
    choices = {"loss": Loss(scale=0.003), "source_sd": 1e-6, "source_rows": 50.0}
    trained = train(Problem(with_times(cases, evaluator.log_times(moved)), [], **choices))
    assert np.abs(trained.errors()).max() < 0.01
    own = trained.problem.free(trained.solution.z)["attention_ceiling"] - free["attention_ceiling"]
    assert own[core].mean() < -0.35
    assert abs(own[~core].mean()) < 0.35
    again = train(Problem(trained.problem.cases, [], **choices))
    np.testing.assert_allclose(again.solution.z, trained.solution.z, rtol=1e-6, atol=1e-9)


def test_a_source_left_out_near_the_whole_fit_is_the_refit():
    sources = ("NeMo", "NeMo of others", "NeMo again")
    cases = [made(source=sources[i % 3], **cells) for i, cells in enumerate((*VARIED[:4], *VARIED[:5]))]
    evaluator, noise = Evaluator(cases), np.random.default_rng(5).normal(0, 0.1, len(cases))
    log_times = evaluator.log_times({p.name: evaluator.centre(p) for p in PARAMETERS})
    posed = Problem(with_times(cases, log_times + noise), kernels(ROWS))
    trained = train(posed)
    quick = without_each(trained)
    errors = left_out_errors(quick)
    for source in sources:
        own = np.array([case.source == source for case in cases])
        refit = dataclasses.replace(trained, solution=posed.solve(trained.solution.z, ~own))
        assert np.abs(errors - refit.errors())[own].max() < 0.02, source
        assert np.abs(errors - trained.errors())[own].max() > 0.02


def test_kernels_follow_the_rooflines():
    found = kernels(ROWS)
    assert [k.kind for k in found] == ["matmul", "matmul", "attention_2", "hbm"]  # the small product is left out
    stack, plain = (
        Stack(matmul_8bit_ceiling=0.9, attention_2_ceiling=0.4),
        embed(Plan(precision="fp8_tensor", attention="flash_2"), CASES[0].workload, 8.0),
    )
    values = {p.name: np.full(4, float(getattr(stack, p.name, 1.0))) for p in PARAMETERS}
    predicted, slopes = log_shares(found, values)
    chip = specs.load_cluster("h100").accelerator
    speed = roofline.rates(chip, plain, stack)
    product = MatmulCount(
        name="", flop=1.0, operand_bytes=0.0, weight_elements=0.0,
        reciprocal_sizes=1 / 8192 + 1 / 4096 + 1 / 16384,
    )  # fmt: skip
    seconds = roofline.matmul_roofs(product, plain, speed, stack)[0].compute_s
    assert predicted[0] == pytest.approx(-math.log(seconds * chip.peak_8bit_flop_per_s))
    core = AttentionCount(
        name="", flop=1.0, operand_bytes=0.0, score_elements=0.0, reciprocal_keys=1 / 2048, ring_bytes=0.0,
        exchange_bytes=0.0,
    )  # fmt: skip
    seconds = roofline.attention_roofs(core, plain, speed, stack)[0].compute_s
    assert predicted[2] == pytest.approx(-math.log(seconds * chip.peak_16bit_flop_per_s))
    assert slopes["hbm_ceiling"].tolist() == [0.0, 0.0, 0.0, pytest.approx(1 / stack.hbm_ceiling)]
    assert isinstance(found[0], Kernel)


def test_a_rule_separates_what_can_be_separated():
    cases = NANOTRON * 5
    slow = np.array([c.plan.pipeline > 1 for c in cases], float)
    weights = fit_weights(cases, slow)
    assert (likely_slow(weights, cases) == slow).all()
    assert not slow_probability(weights, CASES).any()  # no other class has two regimes
    assert len(weights) == features(cases).shape[1]
    assert slow_probability(fit_weights(CASES, np.zeros(len(CASES))), CASES).max() == 0


def test_scatter_is_between_that_of_sources_and_that_of_classes_left_out():
    cases = [made(source=f"NeMo {i}") for i in range(4) for _ in range(10)]
    flattering, harsh = (np.tile([x, -x], 20) for x in (0.06, 0.24))
    near, far, both = (scatter(cases, errors)[""] for errors in (flattering, harsh, np.array([flattering, harsh])))
    assert both == pytest.approx(math.sqrt(near * far))


def test_a_class_left_out_is_predicted_by_the_others():
    cases = [made(source=f"NeMo {i % 2}", **cells) for i, cells in enumerate(VARIED[:4])]
    evaluator = Evaluator(cases)
    log_times = evaluator.log_times({p.name: evaluator.centre(p) for p in PARAMETERS})
    trained = train(Problem(with_times(cases, log_times + 0.3), kernels(ROWS)))
    without = without_each(trained, of_software)
    assert set(without) == {case.stack for case in cases}
    assert (left_out_errors(without, of_software) < trained.errors() - 0.1).all()  # nothing but kernels is left


def test_scatter_of_few_sources_is_wider_than_their_scale():
    """Student's t by the sources of a class: the fewer, the wider; never below what sites differ by."""
    cases = [made(source=f"NeMo {i}") for i in range(4) for _ in range(10)]
    found = scatter(cases, np.tile([0.1, -0.1], 20))
    scale = 0.1 / 0.6745
    assert scale < found[cases[0].stack] < found[""] < 1.25 * scale
    assert scatter(cases[:10], np.tile([0.1, -0.1], 5))[cases[0].stack] > found[cases[0].stack]
    assert min(scatter(cases, np.full(40, 1e-3)).values()) > 0.04


def test_one_wild_source_hardly_widens_a_class():
    cases = [made(source=f"NeMo {i}") for i in range(5) for _ in range(10)]
    calm = scatter(cases, np.tile([0.1, -0.1], 25))
    wild = scatter(cases, np.concatenate([np.tile([0.1, -0.1], 20), np.full(10, 2.0)]))
    assert calm[""] < wild[""] < 1.5 * calm[""]


def test_what_is_kept_gives_the_same_constants():
    posed = problem()
    z = np.random.default_rng(2).normal(0, 0.5, posed.size)
    spread = np.random.default_rng(3).normal(0, 0.2, (posed.size, posed.size))
    keys, kept, factor = narrowed(posed.keys, z, spread @ spread.T + 0.5 * np.eye(posed.size))
    weights = (0.0,) * features(CASES[:1]).shape[1]
    fitted = Fitted(keys=keys, z=kept, factor=factor, regime_weights=weights, scatter={"": 0.1, "within": 0.05})
    tables = as_tables(fitted, {"rows": 1})
    read = from_files(tables, as_posterior(fitted))
    np.testing.assert_allclose(read.z, kept, rtol=1e-5)
    np.testing.assert_allclose(read.factor, np.tril(factor), rtol=1e-2, atol=1e-9)
    free = best_free(read, CASES)
    for i, case in enumerate(CASES):
        for name, value in constants(tables, group(case)).items():
            p = next(p for p in PARAMETERS if p.name == name)
            assert value == pytest.approx(float(p.value(free[name][i])), rel=1e-4), name


def test_the_shipped_constants_are_one_set():
    """Named clusters, predictions of rows and the posterior hold the same numbers."""
    tables, fitted = specs.read_tables("stacks"), posterior.shipped()
    case = made(source="NeMo")
    row = posterior.with_constants([case])[0].cluster.stack
    for name, value in constants(tables, group(case)).items():
        assert getattr(row, name) == pytest.approx(value, rel=1e-4), name
    cluster = specs.load_cluster("h100").stack
    for name, value in constants(tables, constant_group("h100", "megatron-core")).items():
        assert getattr(cluster, name) == pytest.approx(value), name
    assert {p.name for p in PARAMETERS} == {key[0] for key in fitted.keys if key[1] == SHARED}
    assert set(tables["shared"]) | {SLOW} == {p.name for p in PARAMETERS}


def test_an_unknown_chip_has_the_shared_values_and_a_wider_interval():
    tables = specs.read_tables("stacks")
    unknown = constants(tables, dict.fromkeys(("die", "family", "stack", "fabric"), "none of these"))
    assert unknown == pytest.approx(tables["shared"])
    known, strange = made(), dataclasses.replace(made(), family="none of these", fabric="other")
    narrow, wide = posterior.log_sd([known, strange])
    assert 0.03 < narrow < wide < 1.0


def test_steps_are_those_of_the_formula():
    case = posterior.with_constants([CASES[1]])[0]
    log_times, jacobian, unseen = linearised(posterior.shipped(), [CASES[1]])
    found = cost(case.workload, case.cluster, point(case), Exact(math))
    assert math.exp(log_times[0]) == pytest.approx(found.step_s, rel=1e-9)
    assert np.isfinite(jacobian).all()
    assert unseen[0] >= 0


def test_graphs_leave_the_host_what_they_do_not_hold():
    """Of kernels their share; experts, microbatches and the step only where a graph holds the whole iteration."""
    parts, whole = Habits(captured=0.75), Habits(captured=1.0, captured_iteration=True)
    assert parts.host_shares == {"host_kernel_s": 0.25, "routing_s": 1.0, "microbatch_s": 1.0, "step_s": 1.0}
    assert set(whole.host_shares.values()) == {0.0}
    assert set(Habits().host_shares.values()) == {1.0}
