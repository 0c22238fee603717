"""Values a second of three other structures of block, one program each, beside a loop on Python floats of the same.

A job of several structures is evaluated program by program and summed outside (one program of them all would compute
what they share once for each), so its rate is what the times of all three add up to.
"""

import time
from typing import Any

from costmodel.evaluators import compiled
from costmodel.inputs import PlanPoint
from experiments.speed.clock import best_sum_s
from experiments.speed.evaluators import python_per_s
from experiments.speed.subject import Pool, cast, subject

MODELS = {"moe": "deepseek-v3", "encoder-decoder": "mbart-large", "windows in four stages": "swin-1.8b"}
BATCHES = (16_384, 65_536)


def structures(seconds: float, plans: int, seed: int, thorough: bool) -> dict[str, dict[str, Any]]:
    """What was compiled of each structure, for how long, and plans a second. `thorough`: all lengths of batches."""
    batches = BATCHES if thorough else BATCHES[:1]
    return {label: _measure(model, Pool(plans, seed, model), seconds, batches) for label, model in MODELS.items()}


def _measure(model: str, pool: Pool, seconds: float, batches: tuple[int, ...]) -> dict[str, Any]:
    import jax

    workload, cluster = subject(model)
    by_python_per_s = python_per_s(workload, cluster, pool.points, seconds)
    workload, cluster = jax.device_put((cast(compiled.anonymous(workload)), cast(compiled.anonymous(cluster))))
    value, per_s, first_s = compiled.value(), {}, []
    for batch in batches:
        points = jax.device_put(pool.batch(batch))

        def run(points: PlanPoint = points) -> None:
            jax.block_until_ready(value(workload, cluster, points))

        started = time.perf_counter()
        run()
        first_s.append(time.perf_counter() - started)
        per_s[batch] = batch / best_sum_s([run], seconds)
    return {
        "model": model,
        "kinds": len(workload.blocks),
        "operators": sum(len(block.ops) for block in workload.blocks),
        "compile_s": first_s[0],  # with tracing
        "python_per_s": by_python_per_s,
        "jax_per_s": per_s,
    }


def together(measured: dict[str, dict[str, Any]]) -> tuple[float, float]:
    """Plans a second for all structures, one after another: on Python floats and in JAX."""
    python_s = sum(1 / row["python_per_s"] for row in measured.values())
    jax_s = sum(1 / max(row["jax_per_s"].values()) for row in measured.values())
    return 1 / python_s, 1 / jax_s
