"""How far predictions of memory are off, by software: what `Stack.memory_log_sd` holds."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from costmodel.inputs import COMPILED, SOFTWARE
from costmodel.measured.fit import scatter
from costmodel.measured.logged import held_in_order, logged_bytes
from costmodel.measured.rows import Case, classes_on, evaluated, lightened

_WIDTH = 0.4  # of the logarithm of a scale by figures that were printed, for what failures may say otherwise
_STRANGE = 0.01  # share of runs that were not as their row says


def memory_errors(cases: Sequence[Case]) -> tuple[list[Case], np.ndarray]:
    """The cases whose row prints a memory, and log(measured / predicted) of each."""
    known = [case for case in cases if case.measured_mem_bytes]
    if not known:
        return [], np.empty(0)
    run = lightened(known)
    predicted = logged_bytes(run, held_in_order(run, evaluated(run)))
    return known, np.log(np.array([float(case.measured_mem_bytes or np.nan) for case in known]) / predicted)


def errors_elsewhere(known: Sequence[Case], errors: np.ndarray) -> np.ndarray:
    """The errors where nobody knows the class of a case: against the geometric mean over the other classes that run on
    its hardware; XLA's, which has no like, stay."""
    others = [tuple(name for name in classes_on(case.family) if name != case.stack) for case in known]
    others = [() if case.stack in COMPILED else names for case, names in zip(known, others, strict=True)]
    at = np.array([i for i, names in enumerate(others) for _ in names], int)
    _, found = memory_errors([_run_by(known[i], name) for i, names in enumerate(others) for name in names])
    number = np.bincount(at, minlength=len(known))
    return np.where(number > 0, np.bincount(at, found, minlength=len(known)) / np.maximum(number, 1), errors)


def _run_by(case: Case, name: str) -> Case:
    """The case as another class of software holds its plan."""
    stack = dataclasses.replace(case.cluster.stack, software=name, habits=SOFTWARE[name], **dict(SOFTWARE[name].memory))
    return dataclasses.replace(case, stack=name, cluster=dataclasses.replace(case.cluster, stack=stack))


def memory_scatter(cases: Sequence[Case], failed: Sequence[Case] = ()) -> dict[str, float]:
    """Standard deviation of that logarithm by software ("": any other), as `fit.scatter` has it of times: a robust
    scale by source, bias included, drawn towards that of all; of a source the geometric mean of that with its class of
    software and that without. Where runs of its class `failed`, for whatever reason, they have a say."""
    known, errors = memory_errors(cases)
    if not known:
        return {}
    found = scatter(known, np.stack([errors, errors_elsewhere(known, errors)]), lambda case: case.stack)
    for name in found.keys() & {case.stack for case in failed}:
        own = [[case for case in some if case.stack == name] for some in (cases, failed)]
        found[name] = scale_of_failures(found[name], *map(spare_logs, own))
    return found


def spare_logs(cases: Sequence[Case]) -> np.ndarray:
    """log(memory that there is / memory that is needed) of each case, as predicted."""
    run = lightened(cases)
    capacity = np.array([float(case.cluster.accelerator.hbm_bytes) for case in run])
    return np.log(capacity / held_in_order(run, evaluated(run)).peak_bytes)


def scale_of_failures(usual: float, ran: np.ndarray, failed: np.ndarray) -> float:
    r"""The most probable $\sigma$, about as wide as `usual`, where these ran and those failed.

    A run succeeds with $P = q\,((1-e)\,\Phi(s/\sigma) + e)$, $s$ its spare logarithm, $q$ the share that ran of those
    that need less than half of what there is (others fail of something else), $e$ the share that is not as predicted.
    """
    from scipy.special import ndtr

    easy = [int(np.sum(spare > math.log(2))) for spare in (ran, failed)]
    share = (easy[0] + 1) / (sum(easy) + 2)  # Laplace's rule
    scales = usual * np.exp(np.arange(-1.0, 1.01, 0.02))[:, None]
    lucky, unlucky = (share * ((1 - _STRANGE) * ndtr(spare / scales) + _STRANGE) for spare in (ran, failed))
    log_prior = -0.5 * (np.log(scales[:, 0] / usual) / _WIDTH) ** 2
    return float(scales[np.argmax(np.log(lucky).sum(1) + np.log1p(-unlucky).sum(1) + log_prior), 0])
