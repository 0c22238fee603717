"""`equipoise models` and `equipoise clusters`: what is known by name."""

import dataclasses
from collections.abc import Callable
from typing import Any

from costmodel.inputs import Cluster, active_parameters, layers, model_flop, parameters
from costmodel.specs import SpecError, load_cluster, load_workload, model_names, read_tables
from optimize import report
from optimize.cli.command import Command, Switch, answered


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The options of both."""

    json: Switch = False
    """print one JSON object and nothing else"""


def models() -> list[dict[str, Any]]:
    """Every named model with its exact totals; `active_parameters` are those that work on one token.

    Sizes that a family does not have are null; those that differ between stages are lists. Of a model that a user has
    registered its workload is all that is known.
    """
    tables, rows = read_tables("models"), []
    for name in model_names():
        workload = load_workload(name)
        table = tables.get(name, {"hidden": workload.hidden, "family": None, "source": "registered"})
        count = int(parameters(workload))
        sizes = {"layers": layers(workload)} | {key: table.get(key) for key in ("hidden", "heads", "vocabulary")}
        rows.append(
            {"name": name, "parameters": count, "active_parameters": int(active_parameters(workload)), **sizes}
            | {"sequence": workload.sequence, "batch": workload.batch}
            | {"flop_per_token": model_flop(workload) / workload.sequence}
            | {"family": table.get("family", "decoder"), "size_note": table.get("size_note")}
            | {"source": table.get("source"), "date": table.get("date")}
        )
    return rows


def clusters() -> list[dict[str, Any]]:
    """Every named cluster: its accelerator and its tiers from the inside out; where a number is not known, why."""
    tables = read_tables("clusters")
    return [_cluster_or_gap(name, table) for name, table in tables.items()]


def _cluster_or_gap(name: str, table: dict[str, Any]) -> dict[str, Any]:
    """A cluster that lacks a number can be listed, but not evaluated."""
    dated = {"source": table.get("source"), "date": table.get("date")}
    try:
        return _cluster(load_cluster(name)) | dated | {"missing": None}
    except SpecError as error:
        empty = dict.fromkeys(("peak_16bit_flop_per_s", "hbm_bytes", "hbm_bytes_per_s", "power_w", "price_usd"))
        own = {"name": name, "accelerator": table["accelerator"], "default_accelerators": table.get("accelerators")}
        return own | empty | {"types": [], "tiers": []} | dated | {"missing": str(error)}


def _cluster(cluster: Cluster) -> dict[str, Any]:
    chip, prices = cluster.accelerator, cluster.prices
    return {
        "name": cluster.name,
        "accelerator": chip.name,
        "peak_16bit_flop_per_s": chip.peak_16bit_flop_per_s,
        "hbm_bytes": chip.hbm_bytes,
        "hbm_bytes_per_s": chip.hbm_bytes_per_s,
        "power_w": chip.power_w,
        "price_usd": prices.base.price_usd if prices else None,
        "types": list(chip.types),
        "default_accelerators": cluster.accelerators,
        "tiers": [
            {
                "name": tier.name,
                "size": tier.size if tier is not cluster.tiers[-1] else None,
                "usable_size": tier.usable_size if tier is not cluster.tiers[-1] else None,
                "bandwidth_bytes_per_s": tier.bandwidth_bytes_per_s,
                "latency_s": tier.latency_s,
            }
            for tier in cluster.tiers
        ],
    }


def _command(
    name: str, rows: Callable[[], list[dict[str, Any]]], show: Callable[[list[dict[str, Any]]], None]
) -> Command:
    return Command(
        request=Request,
        about=f"The {name} that are known by name.",
        examples=f"""
examples:
  equipoise {name}
  equipoise {name} --json""",
        ask=lambda request: None,
        run=lambda _: rows(),
        as_json=lambda _, rows: answered({}) | {name: rows},
        show=lambda _, rows: show(rows),
    )


MODELS = _command("models", models, lambda rows: report.show_models(rows))
CLUSTERS = _command("clusters", clusters, lambda rows: report.show_clusters(rows))
