r"""A campaign: the cost of a step times the number of steps, with what failures add, in days, dollars, joules and CO2.

$$T = S(\text{method}, \text{target})\; t(\text{plan, hardware, method})\; e(\text{accelerators})$$

Differentiable in everything that its three factors are; at a fixed shape, batch and method $S$ is a constant, so that
what is certified of a step is certified of a campaign.
"""

from collections.abc import Callable, Mapping

from costmodel.formulas import Cost, elapsed
from costmodel.inputs import Prices
from costmodel.semantics import Scalar, Semantics
from costmodel.target.methods import Method, plain, steps_to
from costmodel.target.scaling import Law, tokens_at_batch, tokens_for

Steps = Callable[[Method], Scalar]
"""A law: how many steps a method takes to what is asked for."""


def quadratic(problem: Mapping[str, Scalar], target: Scalar, sem: Semantics) -> Steps:
    """The law of a quadratic with these constants, to a relative squared error (theory: `costmodel.convergence`)."""
    return lambda method: steps_to(method, problem, target, sem)


def language_model(law: Law, parameters: Scalar, batch_tokens: Scalar, target: Scalar, like: Steps) -> Steps:
    r"""The law of a target loss, at a batch: tokens by the scaling law, more beyond the critical batch.

    Methods take as many times the steps of plain training as under `like`, a law of quadratics: an assumption, as no
    published law joins the two.
    """
    tokens = tokens_at_batch(tokens_for(law, parameters, target), batch_tokens, target)
    return lambda method: tokens / batch_tokens * (like(method) / like(plain()))


def campaign(
    cost: Cost,
    method: Method,
    law: Steps,
    *,
    prices: Prices | None = None,
    accelerators: Scalar = 1.0,
    state_bytes: Scalar = 0.0,
    usd_per_s: Scalar = 0.0,
    meter_w: Scalar = 0.0,
) -> dict[str, Scalar]:
    """Steps, seconds of the clock and what they cost, from a step of the method (`methods.applied`).

    Without `prices` nothing fails and there is no CO2; `usd_per_s` and `meter_w` are of the whole cluster.
    """
    steps = law(method)
    slower = 1.0 if prices is None else elapsed(prices, accelerators, state_bytes)
    train_s = steps * cost.step_s * slower
    joule = meter_w * train_s
    return {
        "steps": steps,
        "elapsed": slower,
        "train_s": train_s,
        "usd": usd_per_s * train_s,
        "joule": joule,
        "carbon_g": 0.0 if prices is None else joule * prices.carbon_g_per_j,
    }
