"""Independent subnetworks on quadratics: closed forms against each other, enumeration and the algorithm itself.

Published: theorems 1 and 2 of arXiv 2306.16484. The figures of the eight-dimensional instance were computed apart from
this code.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel.convergence import energy, gradients, optimum, random_quadratic
from costmodel.convergence import laboratory as lab
from costmodel.convergence import subnetworks as ist
from tests.oracles.subnetworks import scaled_error

SMALL = random_quadratic(0, 8, 8)
START = 3 * np.ones(8)


def _played(problem, start, draws, step, algorithm=lab.scaled_subnetworks):
    seeds = draws.shape[1]
    return lab.play(algorithm, problem, (np.repeat(start[None], seeds, 0),), draws, step)


def test_scaled_permutations_converge_in_one_step_under_interpolation():
    draws = lab.sketches("permutation", 10, 5, 8, 8, 1)
    homogeneous = random_quadratic(3, 8, 8, offsets=False)
    at_once, halved = (_played(homogeneous, START, draws, step) for step in (1.0, 0.5))
    assert abs(at_once[1]).max() < 1e-14
    assert np.allclose(halved[-1], START * 2.0**-10, rtol=1e-12)


def test_the_condition_of_theorem_1_is_sufficient_and_not_necessary():
    """The 2x2 counter-example: W is indefinite for c > 2ab/(a+b), f rises at first, and the iterates still converge."""
    a, b, c = 1.0, 16.0, 3.0
    hessian = np.array([[a, c], [c, b]])
    problem = np.stack([hessian, hessian]), np.zeros((2, 2))
    assert np.linalg.eigvalsh(hessian)[0] > 0
    assert c > 2 * a * b / (a + b)
    determinant = np.linalg.det(ist.preconditioner(problem) / 2)  # of W over n
    assert determinant == pytest.approx(a**2 * b**2 - c**2 * (a + b) ** 2 / 4, rel=1e-12)
    assert determinant == pytest.approx(-394.25, rel=1e-12)
    shrink = np.eye(2) - 0.01 * 2 * np.diag([a, b])
    x = np.linalg.eigh(hessian)[1][:, 0]  # the flattest direction
    values = [float(energy(hessian, np.linalg.matrix_power(shrink, k) @ x)) for k in range(2000)]
    assert max(values) > 1.2 * values[0]
    assert values[-1] < 1e-10 * values[0]


def test_the_figures_of_the_eight_dimensional_instance():
    assert ist.scaled_bias(SMALL) == pytest.approx(0.0064644, abs=5e-8)
    assert ist.scaled_variance(SMALL) == pytest.approx(1.1475200, abs=5e-8)
    for step, value in ((1.0, 1.15398), (0.5, 0.38897), (0.1, 0.06686), (0.01, 0.012231)):
        assert ist.scaled_stationary(SMALL, step) == pytest.approx(value, abs=6e-6)


def test_moments_equal_the_enumeration_of_all_permutations():
    """Of four coordinates: mean, covariance and one round's error to 1e-9."""
    problem = random_quadratic(1, 4, 4)
    moves = []
    for order in itertools.permutations(range(4)):
        draw = np.eye(4)[list(order)][None]
        moves.append(lab.scaled_subnetworks(problem, (np.zeros((1, 4)),), draw, 1.0)[0][0])
    moves = np.array(moves)
    assert np.allclose(moves.mean(0), ist.scaled_limit(problem), atol=1e-12)
    away = moves - moves.mean(0)
    assert np.allclose(away.T @ away / len(moves), ist.scaled_covariance(problem), atol=1e-12)
    error = ((0.7 * 3 + 0.3 * moves - optimum(problem)) ** 2).sum(-1).mean()
    assert scaled_error(problem, 3 * np.ones(4), 0.3, 1.0) == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize("step", [1.0, 0.5, 0.1])
def test_mean_and_stationary_value_as_played(step):
    """The mean of many seeds follows the recursion; what it scatters by is within 2 % of the closed form."""
    draws = lab.sketches("permutation", 110, 2000, 8, 8, 1)
    models = _played(SMALL, START, draws, step)
    for k in (1, 3, 10):
        spread = models[k].std(0).max() / 2000**0.5
        assert abs(models[k].mean(0) - ist.scaled_mean(SMALL, START, step, k)).max() < 5 * spread
    played = energy(SMALL[0].mean(0), models[100:] - optimum(SMALL)).mean()
    assert played == pytest.approx(ist.scaled_stationary(SMALL, step), rel=0.02)


def test_theorem_2_bounds_what_it_says():
    """On 110 pairs of beta and step, with the exact value on the left; and the left is what is played."""
    pairs = 0
    for beta in np.linspace(0.02, 0.48, 11):
        for share in np.linspace(0.1, 1.0, 10):
            step = share * (0.5 - beta) / (0.5 + beta)
            for rounds in (1, 7, 200):
                left = ist.theorem_2_mean(SMALL, START, step, rounds)
                assert left <= ist.theorem_2(SMALL, START, beta, step, rounds)
            pairs += 1
    assert pairs >= 100
    models = _played(SMALL, START, lab.sketches("permutation", 20, 2000, 8, 8, 1), 1 / 3)[:-1]
    played = energy(SMALL[0].mean(0), models - optimum(SMALL)).mean()
    assert played == pytest.approx(ist.theorem_2_mean(SMALL, START, 1 / 3, 20), rel=0.02)


@pytest.mark.parametrize("kept", range(1, 7))
def test_the_fixed_point_of_plain_masks(kept):
    """The mean map over all subsets of so many coordinates, which at all of them is gradient descent."""
    problem = random_quadratic(2, 3, 6)
    subsets = np.array([[float(i in some) for i in range(6)] for some in itertools.combinations(range(6), kept)])
    masks = np.repeat(subsets[:, None], 3, 1)  # the mean of a sum over workers does not ask whether they agree
    limit = ist.plain_limit(problem, kept)
    moved = lab.plain_subnetworks(problem, (np.repeat(limit[None], len(masks), 0),), masks, 0.1)[0]
    assert np.allclose(moved.mean(0), limit, atol=1e-10)
    if kept == 6:
        assert np.allclose(limit, optimum(problem), atol=1e-12)
        down = lab.descend(problem, (START[None, :6],), None, 0.1)[0]
        assert np.allclose(lab.plain_subnetworks(problem, (START[None, :6],), masks[:1], 0.1)[0], down, atol=1e-12)
    else:
        assert abs(limit - optimum(problem)).max() > 1e-3


def test_the_noise_of_plain_masks_equals_that_of_all_permutations():
    problem = random_quadratic(5, 2, 4)
    x = ist.plain_limit(problem, 2)
    found = []
    for order in itertools.permutations(range(4)):
        masks = np.array([[float(j in order[:2]) for j in range(4)], [float(j in order[2:]) for j in range(4)]])
        found.append(((masks * gradients(problem, masks * x)).sum(0) ** 2).sum())
    assert ist.plain_noise(problem, 2) == pytest.approx(np.mean(found), rel=1e-12)


def test_the_limit_vanishes_with_many_workers_and_the_bias_does_not():
    """The paper says, without proof, that the bias vanishes for n = d to infinity. Where offsets are independent the
    limit does, as 1/n, but the optimum does not, so that the bias grows towards the whole distance to the optimum."""
    limits, shares = [], []
    for d in (8, 16, 32, 64):
        problems = [random_quadratic(seed, d, d) for seed in range(4)]
        ends = [(ist.scaled_limit(p), optimum(p)) for p in problems]
        limits.append(np.mean([(limit**2).sum() for limit, _ in ends]))
        shares.append(np.mean([((best - limit) ** 2).sum() / (best**2).sum() for limit, best in ends]))
    assert all(0.25 < later / sooner < 0.75 for sooner, later in itertools.pairwise(limits))
    assert all(later > sooner for sooner, later in itertools.pairwise(shares))
    assert shares[-1] > 0.4


def test_gradients_equal_finite_differences():
    """Of error and stationary value by the step, in 64 bits through JAX."""
    with jax.enable_x64(True):
        problem, start = tuple(map(jnp.asarray, SMALL)), jnp.asarray(START)

        def values(step):
            floor = ist.plain_floor(problem, 4.0, step)[1]
            return scaled_error(problem, start, step, 12.0), ist.scaled_stationary(problem, step), floor

        slopes = jax.device_get(jax.jit(jax.jacobian(values))(0.1))
    for slope, value in zip(
        slopes,
        (
            lambda step: scaled_error(SMALL, START, step, 12.0),
            lambda step: ist.scaled_stationary(SMALL, step),
            lambda step: ist.plain_floor(SMALL, 4.0, step)[1],
        ),
        strict=True,
    ):
        assert slope == pytest.approx((value(0.1 + 1e-6) - value(0.1 - 1e-6)) / 2e-6, rel=1e-6)
