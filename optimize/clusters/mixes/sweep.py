"""Every count at once: at hardware like the best, the plans of each job evolve by themselves.

At given hardware a mix is the sum of its jobs, so what is best for each is best for all of them: a dozen genes at a
time instead of fifty, on all counts side by side, each learning from those near it. Evolution of whole clusters
(`clusters.evolution`) visits few of the counts, whose values are jagged; this tells of each what it may be worth.
"""

from typing import Any

import numpy as np

from costmodel import Exact
from costmodel.formulas import counts, memory, timed
from optimize.clusters.genes import Genes, Tree, children
from optimize.clusters.valued import Valued, valued
from optimize.question import Job, at_rates

GENERATIONS, CHILDREN = 24, 6  # of each job on each count
NEAR = 0.25  # of all counts: how far another may lie that is learned from
_EXACT = Exact(np)


class Sweep:
    """The best genes of every job on every count that are known; they start at random."""

    def __init__(self, genes: Genes, generator: np.random.Generator) -> None:
        self.genes, self.generator, self.evaluations = genes, generator, 0
        self.best = [generator.random((len(genes.counts), job.genes)) for job in genes.jobs]

    def run(self, y: np.ndarray) -> Valued:
        """Go on at rates of each count's own; all counts, each with the best plans of its jobs there."""
        problem, every = self.genes.problem, np.arange(len(self.genes.counts))
        plans = []
        for place, (job, tree) in enumerate(zip(problem.jobs, self.genes.jobs, strict=True)):
            self._evolve(place, job, tree, y)
            plans.append(tree.decode(every, self.best[place]))
        points = [tree.points(numbers) for tree, numbers in zip(self.genes.jobs, plans, strict=True)]
        return valued(problem, self.genes.counts, y, points, plans)

    def _evolve(self, place: int, job: Job, tree: Tree, y: np.ndarray) -> None:
        """Some generations of one job."""
        best, draw, every = self.best[place], self.generator, np.arange(len(y))
        value, reach = self._worth(job, tree, every, best, y), 1 + int(NEAR * len(y))
        count = np.repeat(every, CHILDREN)
        for _ in range(GENERATIONS):
            near = np.clip(count + draw.integers(-reach, reach + 1, (2, len(count))), 0, len(y) - 1)
            first = np.where(draw.random(len(count)) < 0.5, count, near[0])
            born = children(best[first], best[near[1]], draw)
            found = self._worth(job, tree, count, born, y).reshape(len(y), CHILDREN)
            least = found.argmin(axis=1)
            better = np.flatnonzero(found[every, least] < value)
            value[better] = found[better, least[better]]
            best[better] = born[CHILDREN * better + least[better]]

    def _worth(self, job: Job, tree: Tree, count: np.ndarray, genes: np.ndarray, y: np.ndarray) -> np.ndarray:
        """What the seconds of plans on some counts (by place) are worth, each with the memory that it needs; infinite
        where more is needed than is sold."""
        problem, accelerators, own = self.genes.problem, self.genes.counts[count].astype(float), y[count]
        self.evaluations += len(count)
        point = tree.points(tree.decode(count, genes))
        counted = counts(job.floats, point, _EXACT)
        need = np.broadcast_to(memory(counted, point, problem.machine.stack, _EXACT).needed_bytes, len(count))
        machine = at_rates(problem.machine, np.moveaxis(np.exp(own), -1, 0))
        step_s, *drawn_s = timed(counted, point, machine, problem.loads, _EXACT)
        second, drawn = problem.money.seconds(own, problem.money.left(problem.limits, accelerators, need))
        worth: Any = second * step_s + (drawn * drawn_s[0] if drawn_s else 0.0)
        return np.where(need <= problem.most_hbm_bytes, worth, np.inf)
