"""Layers by stage and recompute by layer: against all divisions by brute force, differences, and repeated runs."""

import dataclasses
import itertools

import numpy as np
import pytest

from costmodel.graph.staged import MODES
from costmodel.inputs.plan import Plan
from optimize.layers.descent import Relaxed, descend
from optimize.layers.exact import longest_run, segments, solve
from optimize.layers.find_layers import find_layers
from optimize.layers.problem import LayeredProblem, problem
from optimize.status import CommandError, Status
from tests.support import often
from tests.support.builders import cluster, small_decoder, small_moe

DECODER = Plan(data=4, tensor=2, pipeline=4, sequence_parallel=True, domain=8)
MOE = Plan(data=8, pipeline=4, expert=4, domain=8)


def asked(kind: str, memory: float, microbatch: int | None = None) -> LayeredProblem:
    """A small problem whose memory lies between what the fullest stage of an even division needs with all recomputed
    (0) and with nothing recomputed (1)."""
    if kind == "decoder":
        plan, workload = DECODER, small_decoder(layers=8, batch=128, sequence=1024, vocabulary=8000)
    else:
        plan, workload = MOE, small_moe(layers=7, sequence=512, dense_layers=2)
    wide = problem(workload, cluster(32), plan, microbatch=microbatch)
    size = max(wide.microbatches) if microbatch is None else microbatch
    layers = np.zeros((2, 4, 1 + int(wide.kind_of_layer.max()), 3))
    layers[0, ..., 2] = layers[1, ..., 0] = np.bincount(wide.kind_of_layer) / 4
    least, most = wide.tables[size].peak_bytes(layers).max(axis=1)
    machine = cluster(32)
    small = dataclasses.replace(machine.accelerator, hbm_bytes=float(least + memory * (most - least)))
    return problem(workload, dataclasses.replace(machine, accelerator=small), plan, microbatch=microbatch)


def brute_force(given: LayeredProblem, size: int) -> float:
    """The shortest step of all contiguous divisions and all numbers of layers by mode, kind and stage, that fits."""
    best_s, count = np.inf, given.layers
    for cuts in itertools.combinations(range(1, count), given.stages - 1):
        edges = (0, *cuts, count)
        runs = [np.bincount(given.kind_of_layer[a:b], minlength=2) for a, b in itertools.pairwise(edges)]
        choices = [choices_of(run) for run in runs]
        fitting = [fits_alone(given, size, stage, each) for stage, each in enumerate(choices)]
        batch = np.array(list(itertools.product(*fitting)), dtype=float)
        if batch.size:
            kinds = int(given.kind_of_layer.max()) + 1
            step_s, over = given.exact(size, batch[:, :, :kinds])
            best_s = min(best_s, step_s[over <= 0].min(initial=np.inf))
    return float(best_s)


def choices_of(run: np.ndarray) -> list[np.ndarray]:
    """All numbers of layers of each kind by mode."""
    ways = [[(n - a - b, a, b) for a in range(n + 1) for b in range(n + 1 - a)] for n in run]
    return [np.array(choice) for choice in itertools.product(*ways)]


def fits_alone(given: LayeredProblem, size: int, stage: int, choices: list[np.ndarray]) -> list[np.ndarray]:
    kinds = int(given.kind_of_layer.max()) + 1
    layers = np.ones((len(choices), given.stages, kinds, 3))
    layers[:, stage] = np.array(choices)[:, :kinds]
    peaks = given.tables[size].peak_bytes(layers)[:, stage]
    return [choice for choice, peak in zip(choices, peaks, strict=True) if peak <= given.limit_bytes]


@pytest.mark.parametrize("kind", ["decoder", "moe"])
@pytest.mark.parametrize("memory", [-5.0, 0.1, 0.3, 0.6, 1.2])
def test_the_answer_and_the_bound_against_all_divisions(kind, memory):
    given = asked(kind, memory, microbatch=2)
    optimum_s = brute_force(given, 2)
    found = find_layers(given.workload, given.cluster, given.plan, microbatch=2)
    assert np.isfinite(optimum_s) == (memory > 0)
    if memory < 0:
        assert found.status is Status.infeasible
        return
    assert found.lower_bound_s <= optimum_s * (1 + 1e-12)
    assert found.step_s == pytest.approx(optimum_s, rel=1e-9)
    assert found.peak_bytes <= given.limit_bytes
    assert found.gap < 0.03
    most = longest_run(given.tables[2], optimum_s * 1.001)  # of an answer that is nearly the best
    assert kind == "moe" or most < given.layers - given.stages + 1
    assert solve(given.tables[2], segments(*given.at(2), most))[0] <= optimum_s * (1 + 1e-12)


def test_the_bound_is_never_above_the_optimum():
    """Over random problems: sizes, stages, latencies, bandwidths and memory."""
    rng, gaps = np.random.default_rng(0), []
    while len(gaps) < often(40, 200):
        given, size = random_problem(rng)
        optimum_s = brute_force(given, size)
        bound_s = solve(given.tables[size], segments(*given.at(size)))[0]
        assert np.isfinite(bound_s) == np.isfinite(optimum_s)
        if np.isfinite(optimum_s):
            assert bound_s <= optimum_s * (1 + 1e-12)
            gaps.append(optimum_s / bound_s - 1)
    assert np.median(gaps) < 0.02


def random_problem(rng: np.random.Generator) -> tuple[LayeredProblem, int]:
    """Four or five layers on two or three stages, in one kind or two."""
    stages = int(rng.integers(2, 4))
    sizes = {"layers": 7 - stages, "sequence": int(rng.choice([128, 512]))}
    batch = 4 * int(rng.choice([2, 4, 8]))
    if rng.random() < 0.5:
        workload = small_decoder(batch=batch, vocabulary=int(rng.choice([500, 8000])), **sizes)
    else:
        workload = small_moe(batch=batch, dense_layers=int(rng.integers(1, 3)), **sizes)
    machine = cluster(4 * stages, domain=4)
    slower = tuple(
        dataclasses.replace(
            tier,
            bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s / rng.uniform(1, 20),
            latency_s=tier.latency_s * rng.uniform(0.1, 20),
        )
        for tier in machine.tiers
    )
    wide = problem(workload, dataclasses.replace(machine, tiers=slower), Plan(data=4, pipeline=stages, domain=4))
    size = int(rng.choice(wide.microbatches[:2]))
    layers = np.zeros((2, stages, 1 + int(wide.kind_of_layer.max()), 3))
    layers[0, ..., 2] = layers[1, ..., 0] = np.bincount(wide.kind_of_layer) / stages
    least, most = wide.tables[size].peak_bytes(layers).max(axis=1)
    limit_bytes = float(least + rng.uniform(-0.2, 1.2) * (most - least))
    small = dataclasses.replace(machine.accelerator, hbm_bytes=limit_bytes)
    return dataclasses.replace(wide, cluster=dataclasses.replace(wide.cluster, accelerator=small)), size


def test_every_microbatch_is_searched():
    given = asked("decoder", 0.3)
    found = find_layers(given.workload, given.cluster, given.plan)
    alone = [find_layers(given.workload, given.cluster, given.plan, microbatch=b) for b in given.microbatches]
    best = min(alone, key=lambda each: each.step_s)
    assert (found.microbatch, found.stage_layers) == (best.microbatch, best.stage_layers)
    assert found.step_s == best.step_s
    assert found.lower_bound_s <= min(each.lower_bound_s for each in alone) * (1 + 1e-9)


def test_out_of_time_the_bound_is_still_true():
    given = asked("decoder", 0.3)
    best = find_layers(given.workload, given.cluster, given.plan)
    hasty = find_layers(given.workload, given.cluster, given.plan, seconds=1e-9)
    assert hasty.lower_bound_s <= best.step_s


def test_the_answer_is_one_candidate_of_the_problem():
    """Its vector decodes to it and scores what was reported; the passes are those of `costmodel.graph.play`."""
    given = asked("moe", 0.3)
    found = find_layers(given.workload, given.cluster, given.plan)
    candidate = dataclasses.replace(
        given.decode(np.full(given.variables, 0.5)),
        microbatch=found.microbatch,
        stage_layers=found.stage_layers,
        recompute=found.recompute_by_block,
    )
    x = given.encode(candidate)
    assert given.decode(x) == candidate
    assert given.score(x[None])[0] == pytest.approx(found.step_s, rel=1e-12)
    assert found.played_s == pytest.approx(found.passes_s, rel=1e-12)


def test_the_same_seed_gives_the_same_answer():
    given = asked("moe", 0.3)
    first, second = (find_layers(given.workload, given.cluster, given.plan, seed=3) for _ in range(2))
    assert dataclasses.replace(first, seconds=0.0) == dataclasses.replace(second, seconds=0.0)


def test_scores_of_infeasible_vectors_are_penalised():
    given = asked("decoder", 0.4)
    x = np.random.default_rng(0).uniform(size=(50, given.variables))
    step_s, over = given.evaluate(x)
    assert (over > 0).any()
    assert (over <= 0).any()
    np.testing.assert_array_equal(given.score(x) > step_s, over > 0)


@pytest.mark.parametrize(("kind", "modes"), [("decoder", MODES), ("moe", MODES), ("moe", ("none", "full"))])
def test_gradients_against_differences(kind, modes):
    given = asked(kind, 0.7)
    given = problem(given.workload, given.cluster, given.plan, modes=modes)
    relaxed, rng = Relaxed(*given.at(given.microbatches[1])), np.random.default_rng(0)
    point = rng.standard_normal((4, given.stages)), rng.standard_normal((4, given.layers))
    _, slopes = relaxed.gradient(point, 1e-2, 3.0)
    for part, (logits, slope) in enumerate(zip(point, slopes, strict=True)):
        for i in range(logits.shape[1]):
            ends = [[each.copy() for each in point] for _ in range(2)]
            for way, end in zip((1e-6, -1e-6), ends, strict=True):
                end[part][:, i] += way
            up, down = (relaxed.gradient((end[0], end[1]), 1e-2, 3.0)[0] for end in ends)
            np.testing.assert_allclose(slope[:, i], (up - down) / 2e-6, rtol=1e-4, atol=1e-6)


def test_descent_gets_better_and_ends_near_the_bound():
    given = asked("decoder", 0.4)
    _, relaxed_s = descend(Relaxed(*given.at(2)), seed=0)
    assert relaxed_s[-1] < relaxed_s[0]
    bound_s = solve(given.tables[2], segments(*given.at(2)))[0]
    assert relaxed_s[-1] < 1.05 * bound_s
    answer = find_layers(given.workload, given.cluster, given.plan, microbatch=2)
    assert answer.descended_s is not None
    assert answer.descended_s <= 1.01 * answer.step_s


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"pipeline": 1, "data": 16}, "`pipeline` is 1"),
        ({"pipeline": 16, "data": 1}, "expected 2 to the 8 layers"),
        ({"data": 8}, "`accelerators`"),
        ({"offload_weights": 0.5}, "offloads"),
        ({"recompute": "norms+gates"}, "computes norms\\+gates again"),
    ],
)
def test_a_wrong_plan_is_said(change, told):
    with pytest.raises(CommandError, match=told):
        problem(small_decoder(layers=8), cluster(32), dataclasses.replace(DECODER, **change))
