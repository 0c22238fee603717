"""What is known of independent subnetworks on quadratics, beside what this package says and what is played.

Rows: `what`, `published`, `trust` (paper, or independent: computed from the paper's definitions by other code), `ours`,
`holds`. Source: Shulgin and Richtarik, arXiv 2306.16484.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from costmodel.convergence import RATES, constants, dcgd_errors, energy, gradients, optimum, random_quadratic
from costmodel.convergence import laboratory as lab
from costmodel.convergence import subnetworks as ist

Row = dict[str, Any]
INDEPENDENT, PAPER = "independent", "paper"


def rows(seeds: int) -> list[Row]:
    """Every check; `seeds` for what is played."""
    parts = (theorem_1(), stationary(seeds), theorem_2(), plain_masks(), many_workers(), side_by_side(seeds))
    return [row for part in parts for row in part]


def _row(what: str, published: float | None, trust: str, ours: float, holds: bool) -> Row:
    return {"what": what, "published": published, "trust": trust, "ours": float(ours), "holds": bool(holds)}


def _near(what: str, published: float, trust: str, ours: float, relative: float) -> Row:
    return _row(what, published, trust, ours, abs(ours - published) <= relative * abs(published))


def _played(problem: Any, start: Any, draws: Any, step: float) -> Any:
    return lab.play(lab.scaled_subnetworks, problem, (np.repeat(start[None], draws.shape[1], 0),), draws, step)


def theorem_1() -> Iterator[Row]:
    """Interpolation: scaled permutations, and the counter-example to unscaled ones."""
    problem, start = random_quadratic(3, 8, 8, offsets=False), 3 * np.ones(8)
    draws = lab.sketches("permutation", 10, 5, 8, 8, 1)
    left = float(abs(_played(problem, start, draws, 1.0)[1]).max())
    yield _row("distance after one round, scaled, step 1", 0.0, PAPER, left, left < 1e-14)
    halved = float(_played(problem, start, draws, 0.5)[-1].max() / 3)
    yield _near("distance after ten rounds over the first, step 1/2", 2.0**-10, PAPER, halved, 1e-12)
    hessian = np.array([[1.0, 3.0], [3.0, 16.0]])
    pair = np.stack([hessian, hessian]), np.zeros((2, 2))
    determinant = np.linalg.det(ist.preconditioner(pair) / 2)
    yield _near("determinant of W of the 2 x 2 counter-example", -394.25, PAPER, determinant, 1e-9)


def stationary(seeds: int) -> Iterator[Row]:
    """The eight-dimensional instance: bias, noise and stationary values."""
    problem = random_quadratic(0, 8, 8)
    limit = ist.scaled_limit(problem)  # from where three over the step are enough rounds to forget the start
    yield _near("bias, eight dimensions", 0.0064644, INDEPENDENT, ist.scaled_bias(problem), 1e-5)
    yield _near("variance of a round", 1.1475200, INDEPENDENT, ist.scaled_variance(problem), 1e-7)
    for step, value in ((1.0, 1.15398), (0.5, 0.38897), (0.1, 0.06686), (0.01, 0.012231)):
        closed = ist.scaled_stationary(problem, step)
        yield _near(f"stationary value, step {step:g}", value, INDEPENDENT, closed, 1e-4)
        forgotten, many = round(3 / step), max(100, round(4 * seeds * min(1.0, 10 * step)))
        draws = lab.sketches("permutation", 2 * forgotten + 10, many, 8, 8, 1)
        models = _played(problem, limit, draws, step)[forgotten:]
        played = energy(problem[0].mean(0), models - optimum(problem)).mean()
        yield _near(f"the same played, step {step:g}", closed, "this package", played, 0.02)


def theorem_2() -> Iterator[Row]:
    """The bound over a grid of its two parameters."""
    problem, start = random_quadratic(0, 8, 8), 3 * np.ones(8)
    broken, pairs = 0, 0
    for beta, share in itertools.product(np.linspace(0.02, 0.48, 11), np.linspace(0.1, 1.0, 10)):
        step = share * (0.5 - beta) / (0.5 + beta)
        left = ist.theorem_2_mean(problem, start, step, 200)
        broken += bool(left > ist.theorem_2(problem, start, beta, step, 200))
        pairs += 1
    yield _row(f"violations of theorem 2 among {pairs} pairs of beta and step", 0.0, PAPER, broken, broken == 0)


def plain_masks() -> Iterator[Row]:
    """The fixed point over all subsets of coordinates, for every number of them."""
    problem = random_quadratic(2, 3, 6)
    worst = 0.0
    for kept in range(1, 7):
        chosen = [[float(i in some) for i in range(6)] for some in itertools.combinations(range(6), kept)]
        masks, limit = np.repeat(np.array(chosen)[:, None], 3, 1), ist.plain_limit(problem, kept)
        moved = lab.plain_subnetworks(problem, (np.repeat(limit[None], len(masks), 0),), masks, 0.1)[0].mean(0)
        worst = max(worst, float(abs(moved - limit).max()))
    yield _row("move of the plain masks' fixed point, q = 1 to d", 0.0, INDEPENDENT, worst, worst < 1e-10)


def many_workers() -> Iterator[Row]:
    """Stated without proof: the bias vanishes for n = d to infinity. Where offsets are independent it does not.

    The limit goes to 0 and the optimum stays, so that its share grows to the whole: that is what is checked.
    """
    before = 0.0
    for d in (8, 64):
        problems = [random_quadratic(seed, d, d) for seed in range(4)]
        ends = [(ist.scaled_limit(p), optimum(p)) for p in problems]
        share = float(np.mean([((best - limit) ** 2).sum() / (best**2).sum() for limit, best in ends]))
        what = f"bias over the distance of the optimum, n = d = {d} (stated to vanish; grows with independent offsets)"
        yield _row(what, None, PAPER, share, share > before)
        before = share


def side_by_side(seeds: int) -> Iterator[Row]:
    """Rounds to 1e-6 in 64 dimensions, 8 workers, 8 coordinates sent."""
    start, few = 3 * np.ones(64), max(3, seeds // 50)
    for offsets in (True, False):
        problem = random_quadratic(0, 8, 64, offsets=offsets)
        numbers = {**constants(problem, start), "omega": 7.0, "alpha": 1 / 8}
        many, draws = np.repeat(start[None], few, 0), 8 * lab.sketches("random", 330, few, 8, 64, 8)
        own = lab.largest(gradients(problem, many[:, None]), 8)
        plays = {
            "gradient descent": (lab.descend, (many,), "gradient_descent", (8, 8)),
            "DIANA": (lab.diana(1 / 8), (many, 0.0 * own), "diana", (105, 123) if not offsets else (105, 122)),
            "EF21, 8 largest": (lab.error_feedback(8), (many, own), "ef21", (308, 309)),
        }
        if not offsets:
            plays["DCGD"] = (lab.compressed, (many,), "dcgd", (35, 38))
        kind = "heterogeneous" if offsets else "interpolation"
        for name, (algorithm, state, rate, ends) in plays.items():
            step = RATES[rate](**numbers)["step"]
            reached = (lab.errors(problem, lab.play(algorithm, problem, state, draws, step)) <= 1e-6).argmax(0)
            yield _row(
                f"rounds to 1e-6, {name}, {kind}",
                sum(ends) / 2,
                INDEPENDENT,
                reached.mean(),
                reached.min() <= ends[1] * 1.001 and reached.max() >= ends[0] * 0.999,
            )
        yield from _subnetworks(problem, numbers, start, few, offsets)


def _subnetworks(problem: Any, numbers: Any, start: Any, few: int, offsets: bool) -> Iterator[Row]:
    if offsets:
        floor = dcgd_errors(problem, start, RATES["dcgd"](**numbers)["step"], 8, 200)[-1]
        yield _near("floor of DCGD, heterogeneous", 4.1e-4, INDEPENDENT, floor, 0.02)
        bias = ((ist.plain_limit(problem, 8) - optimum(problem)) ** 2).sum() / ((start - optimum(problem)) ** 2).sum()
        yield _near("bias of plain masks, heterogeneous", 8.83e-6, INDEPENDENT, bias, 1e-3)
        return
    masks, many = lab.sketches("permutation", 20, few, 8, 64, 8), np.repeat(start[None], few, 0)
    fastest = 1 / np.linalg.eigvalsh(ist.plain_map(problem, 8))[-1]
    models = lab.play(lab.plain_subnetworks, problem, (many,), masks, fastest)
    reached = (lab.errors(problem, models) <= 1e-6).argmax(0)
    what = "rounds to 1e-6, independent subnetworks, interpolation"
    yield _row(what, 4.5, INDEPENDENT, reached.mean(), set(reached) <= {4, 5})
