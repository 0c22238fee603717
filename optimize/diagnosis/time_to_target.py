r"""How long a plan trains to a target loss or through so many tokens, what that costs, and whether it ends in time.

Steps by a scaling law at even odds, failures included. The probability of a deadline is that of

$$T\,\frac{D_k}{D}\,e^{\sigma z} \le T_{deadline}$$

over normal $z$, $\sigma$ of the logarithm of a step (`step_log_sd`), and, of a loss, over joint samples $D_k$ of the
law's constants (`scaling.sampled`). Of failures the mean is taken: a hundred of them vary by a tenth of what they cost.
"""

import math
from statistics import NormalDist
from typing import Any

from costmodel.formulas import STATE_BYTES, Breakdown, Cost
from costmodel.inputs import Workload, parameters
from costmodel.measured import step_log_sd
from costmodel.target import LAW, LAWS, Law, campaign, floor_of, plain, sampled, tokens_at_batch, tokens_for
from optimize.diagnosis.inputs import Inputs
from optimize.status import CommandError, Status

SAMPLES = 1000  # of the law's constants


def tokens_to(workload: Workload, loss: float) -> float:
    """Tokens of the workload's batch to a loss. Raises where no number of them is enough."""
    law, size = LAWS[LAW], float(parameters(workload))
    least = floor_of(law, size)
    if loss <= least:
        told = f"`target_loss` is {loss:g}; the least that {workload.name} comes down to is {least:.3f} ({LAW})"
        raise CommandError(Status.infeasible, f"{told}; --target-loss {least + 0.02:.2f} is possible")
    return tokens_at_batch(tokens_for(law, size, loss), float(workload.batch * workload.sequence), loss)


def time_to_target(inputs: Inputs, breakdown: Breakdown) -> dict[str, Any] | None:
    """Tokens, steps, seconds of the clock, dollars, joules and CO2 to the target; None where none is asked for."""
    loss, tokens = inputs.target_loss, inputs.tokens
    workload, prices = inputs.workload, inputs.cluster.prices
    if tokens is None:
        if loss is None:
            return None
        tokens = tokens_to(workload, loss)
    steps = tokens / float(workload.batch * workload.sequence)
    case = None if breakdown.economics is None else breakdown.economics.base
    found = campaign(
        Cost(step_s=breakdown.step_s, peak_bytes=0.0),
        plain(),
        lambda _: steps,
        prices=None if prices is None else prices.base,
        accelerators=float(inputs.plan.accelerators),
        state_bytes=STATE_BYTES * float(parameters(workload)),
    )
    each = {"usd": "usd_per_step", "joule": "joule_per_step", "carbon_g": "carbon_g"}  # with their failures
    money = {name: None if case is None else getattr(case, key) for name, key in each.items()}
    spent = {name: None if value is None else steps * value for name, value in money.items()}
    goodput, late = {"goodput": 1.0 / found.pop("elapsed")}, inputs.deadline_s
    odds = None if late is None else in_time_probability(inputs, found["train_s"], tokens)
    law = {"loss": loss, "law": None if loss is None else LAW, "tokens": tokens}
    return {**law, **found, **goodput, **spent, "deadline_s": late, "deadline_probability": odds}


def in_time_probability(inputs: Inputs, train_s: float, tokens: float) -> float:
    """The probability that a run that is predicted to take `train_s` for so many tokens ends by the deadline."""
    job, deadline_s = (inputs.workload, inputs.cluster, inputs.plan), inputs.deadline_s
    assert deadline_s is not None
    log_sd, in_time = step_log_sd(job), math.log(deadline_s / train_s)
    if inputs.target_loss is None:
        return NormalDist().cdf(in_time / log_sd)
    needs = _tokens_needed(inputs.workload, inputs.target_loss)
    odds = [NormalDist().cdf((in_time - math.log(need / tokens)) / log_sd) for need in needs if need < math.inf]
    return math.fsum(odds) / len(needs)


def _tokens_needed(workload: Workload, loss: float) -> list[float]:
    """Tokens to a loss by each sample of the law; infinite where its floor is above."""
    size, batch_tokens = float(parameters(workload)), float(workload.batch * workload.sequence)

    def need(law: Law) -> float:
        reached = loss > floor_of(law, size)
        return tokens_at_batch(tokens_for(law, size, loss), batch_tokens, loss) if reached else math.inf

    return [need(law) for law in sampled(LAW, SAMPLES)]
