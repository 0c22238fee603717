"""A process that times training steps: `python -m experiments.real_steps.worker ORDER`, one line of JSON a layout.

ORDER is a JSON object: `layouts` (their places in the list of the experiment), `quick`, `seconds` and `steps`.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from experiments.real_steps.layouts import QUICK, Layout, layouts


def timed(layout: Layout, seconds: float, steps: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, Any]:
    """Median seconds of `steps` steps or more after compilation, and the bytes and FLOP that XLA counts."""
    import jax

    from experiments.real_steps.training import program

    step, (own, state, tokens) = program(layout)
    compiled = step.lower(own, state, tokens).compile()
    took: list[float] = []
    loss = 0.0
    while len(took) <= steps or (sum(took) < seconds and len(took) < 50 * steps):
        started = clock()
        own, state, value = jax.block_until_ready(compiled(own, state, tokens))
        took.append(clock() - started)
        loss = float(value)
    return {"layout": layout.name, "step_s": statistics.median(took[1:]), "steps": len(took) - 1, "loss": loss} | (
        _counted(compiled)
    )


def _counted(compiled: Any) -> dict[str, float]:
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return {"bytes": float(held + memory.temp_size_in_bytes), "flop": float(cost["flops"])}


def run(order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each layout of the order in turn."""
    known = QUICK if order["quick"] else layouts()
    for place in order["layouts"]:
        yield {"place": place} | timed(known[place], order["seconds"], order["steps"])


if __name__ == "__main__":
    for answer in run(json.loads(sys.argv[1])):
        print(json.dumps(answer), flush=True)
