"""The screens of `equipoise models` and `equipoise clusters`."""

from typing import Any

from rich.table import Table

from optimize import units
from optimize.report.screen import columns_for, new_console, new_table


def show_models(models: list[dict[str, Any]]) -> None:
    """A table of models."""
    console = new_console()
    console.print(_models_table(models, console.width))


def show_clusters(clusters: list[dict[str, Any]]) -> None:
    """A table of clusters."""
    new_console().print(_clusters_table(clusters))


def _models_table(models: list[dict[str, Any]], width: int) -> Table:
    """As many columns as there is room for; names and digits are never cut."""
    sizes = ("layers", "hidden", "heads", "vocabulary", "sequence", "batch")
    rows = [(m["name"], f"{m['parameters'] / 1e9:,.2f} B", *(_size(m[key]) for key in sizes)) for m in models]
    names = ("model", "parameters", *sizes)
    wide = [max(map(len, column)) + 2 for column in zip(names, *rows, strict=True)]
    kept = columns_for(wide, width, map(names.index, ("heads", "vocabulary", "hidden", "layers")))
    table = new_table(*(names[i] for i in kept))
    for row in rows:
        table.add_row(*(row[i] for i in kept))
    left_out = [name for i, name in enumerate(names) if i not in kept]
    if left_out:
        table.caption, table.caption_justify = f"too wide for this screen: {', '.join(left_out)} (--json)", "left"
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
