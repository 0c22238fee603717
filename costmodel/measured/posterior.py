r"""How sure: the interval of a prediction, and the probability that one plan beats another.

The logarithm of a step is linear in the deviations near their best values, so it is normal with variance
$J \Sigma J^T + s^2$: what the constants leave open (Laplace approximation of their posterior), and the scatter $s$ of
software that was never measured. In a comparison on one cluster both share the constants and most of the scatter.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from costmodel.measured.fit import EXPERTS, Fitted, best_free, evaluator, linearised, scatter_class, shipped
from costmodel.measured.rows import Case

P90 = 1.2815515655446004  # of the standard normal distribution


def with_constants(cases: Sequence[Case], fitted: Fitted | None = None) -> list[Case]:
    """The cases with the fitted constants of their family, software class, fabric and regime in their stacks.

    What is no fitted constant (memory, laws of collectives) stays as the case has it.
    """
    fitted = fitted or shipped()
    values = evaluator(fitted, cases).values(best_free(fitted, cases))
    known: dict[tuple, Case] = {}
    with_own = []
    for i, case in enumerate(cases):
        own = {name: float(value[i]) for name, value in values.items()}
        key = (id(case.cluster), *own.values())
        if key not in known:
            stack = dataclasses.replace(case.cluster.stack, **own)
            known[key] = dataclasses.replace(case, cluster=dataclasses.replace(case.cluster, stack=stack))
        with_own.append(dataclasses.replace(case, cluster=known[key].cluster))
    return with_own


def log_sd(cases: Sequence[Case], fitted: Fitted | None = None) -> np.ndarray:
    """Standard deviation of the logarithm of each step's time."""
    fitted = fitted or shipped()
    _, jacobian, unseen = linearised(fitted, cases)
    scatter = np.array([scatter_of(fitted.scatter, scatter_class(case), case.family) for case in cases])
    return np.sqrt(((jacobian @ fitted.factor) ** 2).sum(axis=1) + unseen + scatter**2)


def on(family: str) -> str:
    """The scatter's name of one accelerator, on which the software itself was measured."""
    return f"on {family}"


def scatter_of(scatter: Mapping[str, float], member: str, family: str = "") -> float:
    """The scatter of this software on an accelerator where it was measured, else that of its class; of a class that
    was never measured the widest of those with experts, or that of all."""
    if on(family) in scatter:
        return scatter[on(family)]
    if member in scatter:
        return scatter[member]
    experts = [sd for name, sd in scatter.items() if name.endswith(EXPERTS)]
    return max(experts) if member.endswith(EXPERTS) and experts else scatter[""]
