"""Evolution over counts, degrees, options and rates in NumPy, without compilation: the first answers of every design.

(mu + lambda): children of two parents move a few genes (`genes`) by steps of several sizes, the best are kept, a few of
each count: the value over counts is jagged, and what is best on one says little of the next. Generations are so large
because a thousand vectors take twice as long as a hundred: what takes time is NumPy's calls. `experiments run
search_quality` runs the same until its time is up, as the strongest of the methods that a design is compared with.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from optimize.clusters.genes import Found, Genes, Values, children
from optimize.clusters.valued import INFEASIBLE, Valued
from optimize.question import Problem

EVOLVED = 80_000  # evaluations of one job: half a second, as much as any method has of the first second
BORN, CHILDREN, PARENTS, ALIKE = 1024, 1024, 16, 2  # of a life, of a generation, parents, of these in one group
PATIENCE, BETTER = 8, 1e-4  # generations without improvement (of a logarithm) after which a life ends
TOLD, KEPT = 8, 48  # plans of a generation that are remembered, and of all of them
REMEMBERED = 500  # plans at most, each with the batch that it is of: an hour of evolution needs no more than a minute

Batch = Callable[[np.ndarray], np.ndarray]
Rows = Mapping[str, np.ndarray]


def evolve(
    values: Batch,
    genes: int,
    seed: int,
    go: Callable[[], bool],
    groups: Batch | None = None,
    degrees: Sequence[slice] = (),
) -> None:
    """Lives until `go` says no. `groups` of vectors: of each a few are kept. `degrees`: genes of `children`."""
    for _ in _generations(values, genes, np.random.default_rng(seed), groups or _apart, degrees):
        if not go():
            return


def _generations(
    values: Batch, genes: int, generator: np.random.Generator, groups: Batch, degrees: Sequence[slice]
) -> Iterator[None]:
    """One life after the other, without end, each until it stagnates; the best of one is born again in one of two."""
    population = np.zeros((0, genes))
    while True:
        elite, population = population[:1], generator.random((BORN, genes))
        if generator.random() < 0.5:
            population[: len(elite)] = elite
        population, scores = _best(population, values(population), groups)
        since = 0
        yield
        while since < PATIENCE:
            one, other = generator.integers(len(population), size=(2, CHILDREN))
            born, least = children(population[one], population[other], generator, degrees), scores[0]
            both = np.concatenate([population, born]), np.concatenate([scores, values(born)])
            population, scores = _best(*both, groups)
            since = 0 if scores[0] < least - BETTER else since + 1
            yield


def _best(population: np.ndarray, scores: np.ndarray, groups: Batch) -> tuple[np.ndarray, np.ndarray]:
    """The best of distinct values (equal ones are the same plan), so many of each group."""
    order = np.unique(scores, return_index=True)[1]
    group = groups(population[order])
    by_group = np.argsort(group, kind="stable")
    rank = np.empty(len(order), int)
    rank[by_group] = np.arange(len(order)) - np.searchsorted(group[by_group], group[by_group])
    kept = order[rank < ALIKE][:PARENTS]
    return population[kept], scores[kept]


def _apart(population: np.ndarray) -> np.ndarray:
    """Each in a group of its own."""
    return np.arange(len(population))


def evolved(problem: Problem, seed: int, evaluations: int = EVOLVED) -> list[Found]:
    """The best different plans after so many evaluations, best first."""
    first = FirstAnswers(problem, seed, lambda _: None)
    first.run(evaluations)
    return [first.values.found(*each) for each in first.kept()]


class FirstAnswers:
    """Evolution of one question, and the best plans that it has met, each with the best of its rates. `rows`: those
    that take part (`Genes`)."""

    def __init__(self, problem: Problem, seed: int, told: Callable[[Found], None], rows: Rows | None = None) -> None:
        self.values, self.told, self.best = Values(Genes(problem, rows)), told, np.inf
        self.known: dict[tuple[int, ...], tuple[float, Valued, int]] = {}  # by count and plans
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Begin anew, with all that is known."""
        genes, draw = self.values.genes, np.random.default_rng(seed)
        self._generations = _generations(self._recorded, len(genes), draw, genes.counts_of, genes.degrees)

    def run(self, evaluations: int, between: Callable[[], None] = lambda: None) -> None:
        """Go on for so many evaluations; every improvement is told. `between` generations something else is done."""
        end = self.values.evaluations + evaluations
        while len(self.values.genes.counts) and self.values.evaluations < end:
            next(self._generations)
            between()

    def _recorded(self, vectors: np.ndarray) -> np.ndarray:
        found = self.values(vectors)
        for place in np.argsort(found.log_value, kind="stable")[:TOLD].tolist():
            key = (int(found.accelerators[place]), *(int(numbers[place]) for numbers in found.plans))
            value = float(found.log_value[place])
            if value < INFEASIBLE and (key not in self.known or value < self.known[key][0]):
                self.known[key] = value, found, place
        if len(self.known) > REMEMBERED:
            last = sorted(value for value, _, _ in self.known.values())[KEPT - 1]
            self.known = {key: each for key, each in self.known.items() if each[0] <= last}
        best = int(found.log_value.argmin())
        if found.log_value[best] < min(self.best, INFEASIBLE):
            self.best = float(found.log_value[best])
            self.told(self.values.found(found, best))
        return found.log_value

    def kept(self) -> list[tuple[Valued, int]]:
        """The best different plans, best first: a batch, and the place in it."""
        best = sorted(self.known.values(), key=lambda each: each[0])[:KEPT]
        return [(found, place) for _, found, place in best]
