"""How long a plan trains to a target loss, and what that costs: steps by a scaling law, failures included."""

from typing import Any

from costmodel.formulas import STATE_BYTES, Breakdown, Cost
from costmodel.inputs import Workload, parameters
from costmodel.target import LAW, LAWS, campaign, floor_of, plain, tokens_at_batch, tokens_for
from optimize.diagnosis.inputs import Inputs
from optimize.status import CommandError, Status


def tokens_to(workload: Workload, loss: float) -> float:
    """Tokens of the workload's batch to a loss. Raises where no number of them is enough."""
    law, size = LAWS[LAW], float(parameters(workload))
    least = floor_of(law, size)
    if loss <= least:
        told = f"`target_loss` is {loss:g}; the least that {workload.name} comes down to is {least:.3f} ({LAW})"
        raise CommandError(Status.infeasible, f"{told}; --target-loss {least + 0.02:.2f} is possible")
    return tokens_at_batch(tokens_for(law, size, loss), float(workload.batch * workload.sequence), loss)


def time_to_target(inputs: Inputs, breakdown: Breakdown) -> dict[str, Any] | None:
    """Tokens, steps, seconds of the clock, dollars, joules and CO2 to the target loss; None where none is asked for."""
    if inputs.target_loss is None:
        return None
    workload, prices = inputs.workload, inputs.cluster.prices
    tokens = tokens_to(workload, inputs.target_loss)
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
    goodput = {"goodput": 1.0 / found.pop("elapsed")}
    return {"loss": inputs.target_loss, "law": LAW, "tokens": tokens, **found, **goodput, **spent}
