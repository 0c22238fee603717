"""The host's entry: what one plan costs, with everything that explains it."""

import dataclasses
import math

from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas import (
    STATE_BYTES,
    Breakdown,
    breakdown,
    busy,
    economics_range,
    parts,
)
from costmodel.inputs import Cluster, Plan, Stack, Workload, parameters
from costmodel.pytree import as_floats
from costmodel.specs import FLAG, check_plan, expecting

_EXACT = Exact(math)


@expecting(checked=FLAG)
def evaluate(
    workload: Workload, cluster: Cluster, plan: Plan, stack: Stack | None = None, *, checked: bool = True
) -> Breakdown:
    """One step of `workload` on `cluster` under `plan`, exactly, in float64: of Python floats, not inside `jax.jit`
    (there `cost` of what `prepare` gives).

    `stack` replaces the cluster's own. Raises a `ValueError` that names every rule which the plan breaks (unless it is
    not to be `checked`: runs were measured whose layouts no rule foresees); a plan that does not fit in memory is an
    answer, not an error (`Breakdown.fits`).
    """
    if checked:
        check_plan(plan, workload, cluster)
    prices = as_floats(cluster.prices)
    workload, cluster, point = prepare(workload, cluster, plan, stack)
    done = parts(workload, cluster, point, _EXACT)
    found = breakdown(workload, cluster, point, done, _EXACT)
    if prices is None:
        return found
    units = busy(done.counts, done.times, done.step.work, point, cluster)
    state_bytes = STATE_BYTES * float(parameters(workload))
    asked = (point.accelerators, point.domain, done.step.step_s, found.tokens, units, state_bytes)
    return dataclasses.replace(found, economics=economics_range(cluster, prices, *asked))
