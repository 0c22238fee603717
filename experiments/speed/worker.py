"""A measuring process: pinned to its cores before it imports JAX. `python -m experiments.speed.worker '{...}'`."""

import json
import os
import sys
import time
from typing import Any


def pin(cores: list[int]) -> None:
    """Keep this process on these cores, where the system can."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def one_core(order: dict[str, Any]) -> dict[str, Any]:
    """Everything that is compared within one run on one core."""
    from experiments.speed.evaluators import Bench
    from experiments.speed.machine import limit_s, rates_per_s

    effort = order["effort"]
    bench = Bench(effort, order["plans"], order["seed"])
    rates = rates_per_s(effort["seconds"] / 4, effort["links"])
    counts = bench.operation_counts()
    return {
        "throughput": bench.throughput(),
        "grid": bench.grids(),
        "compile": bench.compile_times(),
        "limit": {
            "rates_per_s": rates,
            "operations": counts,
            "per_s": {name: 1 / limit_s(count, rates) for name, count in counts.items()},
        },
    }


def structures(order: dict[str, Any]) -> dict[str, Any]:
    """Other structures of block, on one core."""
    from experiments.speed.structures import structures

    return structures(order["seconds"], order["plans"], order["seed"], order["thorough"])


def many_plans(order: dict[str, Any]) -> dict[str, Any]:
    """Evaluate `plans` in batches, keep every result, and say how much memory that took."""
    import resource

    import numpy as np

    from costmodel.evaluators import batch_cost
    from experiments.speed.subject import Pool, subject

    plans, piece = order["plans"], 262_144
    workload, cluster = subject()
    pool = Pool(seed=order["seed"])
    batch_cost(workload, cluster, pool.batch(1000))  # compiles
    step_s = np.empty(plans, np.float32)
    peak_bytes = np.empty(plans, np.float32)
    evaluating, started = 0.0, time.perf_counter()
    for start in range(0, plans, piece):
        points = pool.batch(min(piece, plans - start))
        before = time.perf_counter()
        result = batch_cost(workload, cluster, points)
        evaluating += time.perf_counter() - before
        step_s[start : start + piece] = result.step_s
        peak_bytes[start : start + piece] = result.peak_bytes
    total = time.perf_counter() - started
    scale = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return {
        "plans": plans,
        "evaluating_s": evaluating,
        "total_s": total,
        "finite": bool(np.isfinite(step_s).all() and np.isfinite(peak_bytes).all()),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale,
    }


def windows(order: dict[str, Any]) -> dict[str, Any]:
    """Count evaluations in windows of time that all processes share; `devices` splits each batch over XLA devices."""
    import jax

    from costmodel.evaluators import compiled
    from experiments.speed.subject import Pool, cast, subject

    devices, batch = order["devices"], order["batch"]
    workload, cluster = subject()
    workload, cluster = cast(compiled.anonymous(workload)), cast(compiled.anonymous(cluster))
    points = Pool(seed=order["seed"]).batch(batch * devices)
    if devices > 1:
        mesh = jax.sharding.Mesh(jax.devices(), ("plans",))
        spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("plans"))
        whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        (workload, cluster), points = jax.device_put((workload, cluster), whole), jax.device_put(points, spread)
    else:
        workload, cluster, points = jax.device_put((workload, cluster, points))
    value = compiled.value()
    jax.block_until_ready(value(workload, cluster, points))
    print("ready", flush=True)
    begin = float(sys.stdin.readline())  # a moment of the clock that all processes share
    counts = [0] * order["windows"]
    while (window := (time.time() - begin) / order["window_s"]) < order["windows"]:
        jax.block_until_ready(value(workload, cluster, points))
        if window >= 0:
            counts[int(window)] += batch * devices
    return {"counts": counts}


ROLES = {"one_core": one_core, "structures": structures, "many_plans": many_plans, "windows": windows}


def main() -> None:
    """Read the order from the command line, print the result as the last line."""
    order = json.loads(sys.argv[1])
    pin(order["cores"])
    print(json.dumps(ROLES[order["role"]](order)), flush=True)


if __name__ == "__main__":
    main()
