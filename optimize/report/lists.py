"""The screens of `equipoise models` and `equipoise clusters`."""

from typing import Any

from rich.table import Table

from optimize import units
from optimize.report.screen import new_console, new_table


def show_models(models: list[dict[str, Any]]) -> None:
    """A table of models."""
    new_console().print(_models_table(models))


def show_clusters(clusters: list[dict[str, Any]]) -> None:
    """A table of clusters."""
    new_console().print(_clusters_table(clusters))


def _models_table(models: list[dict[str, Any]]) -> Table:
    table = new_table("model", "parameters", "layers", "hidden", "heads", "vocabulary", "sequence", "batch")
    for model in models:
        sizes = [_size(model[key]) for key in ("layers", "hidden", "heads", "vocabulary", "sequence", "batch")]
        table.add_row(model["name"], f"{model['parameters'] / 1e9:.2f} B", *sizes)
    return table


def _size(value: int | list[int] | None) -> str:
    """A size of a model: one number, one for each stage, or none."""
    if isinstance(value, list):
        return "/".join(f"{item:,}" for item in value)
    return "-" if value is None else f"{value:,}"


def _clusters_table(clusters: list[dict[str, Any]]) -> Table:
    table = new_table("cluster", "16-bit peak", "memory", "at", "tiers: bandwidth each way, latency")
    table.columns[4].justify = "left"
    for cluster in clusters:
        if cluster["missing"]:
            table.add_row(cluster["name"], "", "", "", cluster["missing"].partition("; ")[0])
        for index, tier in enumerate(cluster["tiers"]):
            table.add_row(*(_chip_cells(cluster) if index == 0 else ("", "", "", "")), _tier_words(tier))
    for column in table.columns[:4]:
        column.min_width = max(map(len, map(str, (column.header, *column.cells))))
    table.columns[4].no_wrap = False  # the only one that may go on below
    return table


def _chip_cells(cluster: dict[str, Any]) -> tuple[str, ...]:
    return (
        cluster["name"],
        units.rate(cluster["peak_16bit_flop_per_s"], "FLOP/s"),
        units.scaled(cluster["hbm_bytes"], units.BYTES),
        units.rate(cluster["hbm_bytes_per_s"], "B/s"),
    )


def _tier_words(tier: dict[str, Any]) -> str:
    size = f" of {tier['size']}" if tier["size"] else ""
    speed = units.rate(tier["bandwidth_bytes_per_s"], "B/s")
    return f"{tier['name']}{size}: {speed}, {units.scaled(tier['latency_s'], units.SECONDS)}"
