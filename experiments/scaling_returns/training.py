"""Fully sharded training on so many accelerators: what a step takes, exposes, draws and yields."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel import Exact, Plan, as_floats, evaluate, load_cluster, load_workload, parts, prepare, violations
from costmodel.evaluators import SUBGRADIENT, log_gradient
from costmodel.formulas import breakdown, busy, economics
from costmodel.inputs import Cluster, Workload
from costmodel.models import decoder

SOFTWARE = "fsdp"
SEM = Exact(np)
_ONE_B = {
    "layers": 16, "hidden": 2048, "heads": 32, "key_value_heads": 8, "ffn": 8192, "vocabulary": 128256, "gated": True,
    "tied": True,
}  # fmt: skip
MODELS: dict[str, Mapping[str, Any]] = {
    "1b": _ONE_B,  # config.json of meta-llama/Llama-3.2-1B
}


def workload_of(model: str, sequence: int, batch: int) -> Workload:
    """A named model, or one of `MODELS`."""
    if model in MODELS:
        return decoder(name=model, sequence=sequence, batch=batch, **MODELS[model])
    return load_workload(model, sequence=sequence, batch=batch)


def cluster_of(name: str, accelerators: int) -> Cluster:
    """The named cluster under the class of software of this experiment."""
    return load_cluster(name, accelerators=accelerators, software=SOFTWARE)


def sharded(cluster: Cluster, accelerators: int, **others: Any) -> Plan:
    """Weights, gradients and states over all data ranks; 16 bits in what the chip has."""
    precision = "bf16" if "bf16" in cluster.accelerator.types else "fp16"
    common = {"zero_stage": 3, "precision": precision, "gradient_dtype": precision}
    ranks = others.get("tensor", 1) * others.get("pipeline", 1)
    return Plan(data=accelerators // ranks, **common, **others)


def trained(workload: Workload, cluster: Cluster, plan: Plan) -> dict[str, float]:
    """The figures of one run, per accelerator where the name says so."""
    found = evaluate(workload, cluster, plan)
    base, n = (None if found.economics is None else found.economics.base), plan.accelerators
    exposed_s = sum(term.exposed_s for term in found.terms if term.sends)
    drawn = None if base is None or base.draw is None else base.draw
    return {
        "step_s": float(found.step_s),
        "tokens_per_s_each": float(found.tokens_per_s) / n,
        "mfu": float(found.mfu),
        "exposed": float(exposed_s / found.step_s),
        "watts_each": float("nan") if drawn is None else float(drawn.servers_w) / n,
        "tokens_per_j": float("nan") if drawn is None else float(found.tokens_per_s / drawn.meter_w),
        "fits": bool(found.fits),
    }


def weak(model: str, name: str, counts: Sequence[int], sequence: int, local: int) -> Iterator[dict[str, Any]]:
    """`local` sequences on each accelerator: a run at each count, with recompute where nothing fits without."""
    for n in counts:
        cluster, workload = cluster_of(name, n), workload_of(model, sequence, local * n)
        for recompute in ("none", "full"):
            plan = sharded(cluster, n, microbatch=local, recompute=recompute)
            figures = trained(workload, cluster, plan)
            if figures["fits"]:
                break
        told = {"model": model, "cluster": name, "accelerators": n, "recompute": plan.recompute}
        yield told | figures


def strong(model: str, name: str, counts: Sequence[int], sequence: int, batch: int) -> Iterator[dict[str, Any]]:
    """The same global batch at each count, in microbatches of at most two sequences."""
    for n in counts:
        cluster, local = cluster_of(name, n), batch // n
        plan = sharded(cluster, n, microbatch=min(2, local))
        told = {"model": model, "cluster": name, "accelerators": n, "recompute": plan.recompute}
        yield told | trained(workload_of(model, sequence, batch), cluster, plan)


SHAPES = tuple((tensor, pipeline) for tensor in (1, 2, 4, 8) for pipeline in (1, 2, 4))


def degrees(model: str, name: str, n: int, sequence: int, local: int) -> list[dict[str, Any]]:
    """The best run of each tensor and pipeline degree that fits, at the same global batch, fastest first."""
    cluster, workload = cluster_of(name, n), workload_of(model, sequence, local * n)
    best: dict[tuple[int, int], dict[str, Any]] = {}
    for (tensor, pipeline), microbatch in _choices(local):
        others = {"tensor": tensor, "pipeline": pipeline, "sequence_parallel": tensor > 1}
        if n % (tensor * pipeline) or local * n % ((n // (tensor * pipeline)) * microbatch):
            continue
        plan = sharded(cluster, n, microbatch=microbatch, **others)
        if violations(plan, workload, cluster):
            continue
        run = {"tensor": tensor, "pipeline": pipeline, "microbatch": microbatch, **trained(workload, cluster, plan)}
        known = best.get((tensor, pipeline))
        if run["fits"] and (known is None or run["step_s"] < known["step_s"]):
            best[tensor, pipeline] = run
    return sorted(best.values(), key=lambda run: run["step_s"])


def _choices(local: int) -> Iterator[tuple[tuple[int, int], int]]:
    for tensor, pipeline in SHAPES:
        most = local * tensor * pipeline
        yield from (((tensor, pipeline), size) for size in (1, 2, 4, 8, 16) if size <= most)


QUANTITIES = ("tokens per s", "meter W", "capital USD")


def returns(model: str, name: str, counts: Sequence[float], sequence: int, local: float | None, batch: float) -> Any:
    """What one more per cent of accelerators brings and takes, by dual numbers at each count.

    Elasticities of `QUANTITIES` by the number of accelerators, with `local` sequences on each, or one global `batch`
    where `local` is None. Counts are relaxed: the next accelerator is a derivative.
    """
    n = np.array(counts, float)
    begin = prepared(model, name, counts[0], sequence)

    def formula(quantity: int, at: Mapping[str, Any]) -> Any:
        ranks = at["accelerators"]
        size = np.minimum(2.0, batch / n) if local is None else local
        found, money = relaxed(begin, ranks, size, batch if local is None else local * ranks, SUBGRADIENT)
        assert money.bill is not None
        return (found.tokens_per_s, money.draw.meter_w, money.bill.usd)[quantity]

    found = [log_gradient(lambda at, i=i: formula(i, at), {"accelerators": n}) for i in range(3)]
    slopes = {name: slope["accelerators"] for name, (_, slope) in zip(QUANTITIES, found, strict=True)}
    values = {name: np.exp(value) for name, (value, _) in zip(QUANTITIES, found, strict=True)}
    gain = slopes["tokens per s"]
    return {
        "accelerators": list(counts),
        "next_accelerator": gain.tolist(),
        "next_watt": (gain / slopes["meter W"]).tolist(),
        "next_usd": (gain / slopes["capital USD"]).tolist(),
        "tokens_per_s": values["tokens per s"].tolist(),
        "meter_w": values["meter W"].tolist(),
    }


Prepared = tuple[Any, Any, Any, Any, Any]
"""Workload, cluster and plan as the formulas take them, and the cluster with its prices."""


def prepared(model: str, name: str, n: int, sequence: int) -> Prepared:
    """A run whose number of accelerators and batch may then be any numbers."""
    cluster = cluster_of(name, n)
    assert cluster.prices is not None
    ready = prepare(workload_of(model, sequence, n), cluster, sharded(cluster, n))
    return (*ready, as_floats(cluster), as_floats(cluster.prices.base))


def relaxed(begin: Prepared, ranks: Any, microbatch: Any, batch: Any, sem: Any) -> tuple[Any, Any]:
    """Breakdown and economics with numbers that no plan could have: counts and sequences between whole ones."""
    ready, machine, fixed, chip, prices = begin
    point = dataclasses.replace(fixed, accelerators=ranks, microbatch=microbatch)
    job = dataclasses.replace(ready, batch=batch)
    done = parts(job, machine, point, sem)
    found = breakdown(job, machine, point, done, sem)
    units = busy(done.counts, done.times, done.step.work, point, machine)
    asked = (ranks, point.domain, found.step_s, found.tokens, units)
    return found, economics(chip, prices, *asked)


def at_tokens(model: str, name: str, n: int, sequence: int, local: float) -> dict[str, float]:
    """MFU and power of each accelerator with so many sequences on it, whole or not."""
    found, money = relaxed(prepared(model, name, n, sequence), float(n), local, local * n, SEM)
    return {
        "mfu": float(found.mfu),
        "watts_each": float(money.draw.servers_w) / n,
        "tokens_per_s_each": float(found.tokens_per_s) / n,
        "tokens_per_j": float(found.tokens_per_s / money.draw.meter_w),
    }


def tokens_of_loss(model: str, name: str, ends: tuple[int, int], sequence: int, loss: float) -> float:
    """Tokens on each accelerator with which going from one count to the other loses so much throughput: bisection."""
    begin = prepared(model, name, ends[1], sequence)

    def lost(local: float) -> float:
        few, many = (float(relaxed(begin, float(n), local, local * n, SEM)[0].step_s) for n in ends)
        return 1 - few / many

    low, high = 0.1, 16.0
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if lost(middle) > loss else (low, middle)
    return sequence * low
