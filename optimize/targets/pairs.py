r"""Which pairs of shape and batch reach a target loss, and with how many tokens.

Tokens are those after which the loss is below the target with a given probability, over joint samples of the scaling
law's constants and the scatter of steps' times (`confidence`): so many more that both are covered.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.inputs import Cluster, Workload, model_flop, parameters
from costmodel.measured import posterior, shipped
from costmodel.models import decoder
from costmodel.target import (
    LAWS,
    best_parameters,
    critical_batch,
    floor_of,
    least_flop,
    sampled,
    tokens_at_batch,
    tokens_for,
)
from optimize.question import Job
from optimize.status import CommandError, Status

SAMPLES = 1000
BATCHES = (0.25, 0.5, 1.0, 2.0)  # of the critical one
SPREAD = 3.0  # of parameters, about those that take the fewest FLOP
WIDTHS = (512, *range(1024, 8193, 1024), 10240, 12288, 14336, 16384, 20480)
DEPTHS = (96, 128, 160)  # elements of the stream for each layer
VOCABULARY, SEQUENCE, HEAD = 128_256, 8192, 128
Target = Mapping[str, Any]
"""`loss`, `law` (a name of LAWS), `confidence`."""


def scatter(template: Cluster) -> float:
    """Standard deviation of the logarithm of a step's time, of the software in general."""
    return posterior.scatter_of(shipped().scatter, template.stack.software)


def sure_tokens(target: Target, size: float, batch_tokens: float, log_sd: float) -> float:
    """Tokens at the step's predicted time that suffice with the probability asked for; infinite: none do."""
    each, noise = _laws(target), np.random.default_rng(1).standard_normal(SAMPLES)
    above = target["loss"] - floor_of(each, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        tokens = np.where(above > 0, tokens_for(each, size, target["loss"]), np.inf)
    every = tokens_at_batch(tokens, batch_tokens, target["loss"]) * np.exp(log_sd * noise)
    return float(np.quantile(every, target["confidence"], method="inverted_cdf"))


def least_loss(target: Target, size: float) -> float:
    """What so many parameters come down to with the probability asked for, whatever the tokens."""
    return float(np.quantile(floor_of(_laws(target), size), target["confidence"], method="inverted_cdf"))


def _laws(target: Target) -> dict[str, np.ndarray]:
    """Samples of the constants as arrays; at even odds the law as published."""
    if target["confidence"] == 0.5:
        return {name: np.full(SAMPLES, value) for name, value in LAWS[target["law"]].items()}
    rows = list(sampled(target["law"], SAMPLES))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def job_of(target: Target, workload: Workload, log_sd: float) -> Job | None:
    """The workload with the tokens that the target takes; None where none suffice."""
    tokens = sure_tokens(target, float(parameters(workload)), float(workload.batch * workload.sequence), log_sd)
    return Job(workload=workload, tokens=tokens) if math.isfinite(tokens) else None


def batches(target: Target, sequence: int) -> list[int]:
    """Sequences of a step about the critical batch, powers of two."""
    middle = critical_batch(target["loss"]) / sequence
    return sorted({2 ** max(0, round(math.log2(share * middle))) for share in BATCHES})


def shapes(target: Target, sequence: int = SEQUENCE) -> Iterator[Workload]:
    """Dense decoders (gated, 8 heads of keys and values) about the size that takes the fewest FLOP."""
    law = LAWS[target["law"]]
    if target["loss"] <= law["floor"]:
        raise _impossible(target, None)
    size = float(best_parameters(law, least_flop(law, target["loss"])))
    for width in WIDTHS:
        for layers in sorted({8 * max(1, round(width / depth / 8)) for depth in DEPTHS}, reverse=True):
            shape = _decoder(layers, width, sequence)
            if size / SPREAD <= parameters(shape) <= size * SPREAD:
                yield shape


def _decoder(layers: int, width: int, sequence: int) -> Workload:
    heads = width // HEAD
    return decoder(
        name=f"decoder {layers} x {width}",
        layers=layers,
        hidden=width,
        heads=heads,
        key_value_heads=min(heads, 8),
        ffn=7 * width // 2,
        vocabulary=VOCABULARY,
        sequence=sequence,
        batch=1,
        gated=True,
    )


def jobs_of(target: Target, workloads: Sequence[Workload], batch: int | None, log_sd: float) -> list[Job]:
    """Every pair of shape and batch that reaches the loss, fewest FLOP first. Raises where none does."""
    pairs = [
        dataclasses.replace(shape, batch=own)
        for shape in workloads
        for own in ([batch] if batch else batches(target, int(shape.sequence)))
    ]
    found = [job for job in (job_of(target, workload, log_sd) for workload in pairs) if job is not None]
    if not found:
        raise _impossible(target, workloads)
    return sorted(found, key=_flop)


def _flop(job: Job) -> float:
    return float(model_flop(job.workload)) * job.tokens / float(job.workload.sequence)


def _impossible(target: Target, workloads: Sequence[Workload] | None) -> CommandError:
    """The nearest that is possible: of the shapes that were asked for, or of any."""
    sizes = [float(parameters(workload)) for workload in workloads or ()]
    least = least_loss(target, max(sizes, default=1e15))
    what = f"{workloads[0].name} comes" if workloads and len(workloads) == 1 else "any model comes"
    odds = f"with a probability of {target['confidence']:g}"
    told = f"`target_loss` is {target['loss']:g}; the least that {what} down to {odds} is {least:.3f}"
    return CommandError(Status.infeasible, f"{told} ({target['law']}); --target-loss {least + 0.02:.2f} is possible")
