"""How do compute and communication grow apart as models and hardware evolve, and when does communication not matter?

After Pati et al. 2023 (arXiv 2302.02825), of which only the abstract could be read: its claims (P) stand beside ours,
and what follows by counting (D). Elementary hardware is an MI210's data sheet at fixed shares, on which the published
range can be recomputed; named devices have their calibrated constants.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from costmodel import load_cluster
from experiments import beside
from experiments.comp_vs_comm import figures, layer, maps, projection
from experiments.comp_vs_comm.projection import SEM, grid
from experiments.runner import write_rows

POINTS = ((4096, 1024, 16), (16384, 2048, 32), (16384, 2048, 64), (65536, 4096, 128), (65536, 4096, 256))
SHARES = ((41, 59, 74), (27, 43, 60), (43, 60, 75), (28, 44, 61), (44, 61, 76))
"""Per cent of a layer's time at each of `POINTS` (hidden, sequence, tensor) and of `EVOLVED`."""
EVOLVED = (1, 2, 4)
EXPONENTS = {"edge": {"hidden": 1, "sequence": 0, "tensor": -1, "batch": 0}, "slack": {"hidden": 0, "sequence": 1}}
EXPONENTS["slack"] |= {"tensor": 0, "batch": 1}
MATTERS = 0.05
"""Share of a layer's time below which communication is said not to matter."""


def run(
    folder: Path,
    say: Callable[[str], None],
    *,
    device: str = "a100-80gb",
    generations: tuple[str, ...] = ("v100", "a100-80gb", "h100", "b200"),
    microbenchmarks: str = "../shared/measurements/microbenchmarks.csv",
) -> dict[str, Any]:
    """The laws by gradient, the grid on elementary and on named hardware, projections, maps, figures.

    Args:
        device: Whose calibrated constants stand for measured operators.
        microbenchmarks: Published matmuls; left out where the file is not there.
    """
    say("laws")
    results: dict[str, Any] = {"laws": _laws(), "table": _table(), "overlapped": _overlapped()}
    say("grid")
    results["grid"] = _grid()
    cluster = load_cluster(device, accelerators=1024)
    say("projection")
    inside = _axes(tensor=(1, 2, 4, 8))
    results["projection"] = projection.projected(cluster, grid(inside)) | {"device": device}
    results["measured"] = projection.measured(Path(microbenchmarks))
    say("maps")
    results["map"] = _map(cluster, device)
    results["generations"] = [_generation(name) for name in generations]
    results["beside"] = _beside(results)
    write_rows(results["grid"]["rows"], folder / "grid.csv")
    figures.draw(results, folder)
    return results


def _axes(**others: tuple[float, ...]) -> dict[str, Any]:
    widths = tuple(2.0**k for k in range(10, 17))
    return {"hidden": widths, "sequence": (1024, 2048, 4096, 8192), "batch": (1, 4), **others}


def _laws() -> dict[str, Any]:
    """Largest difference from the exponents where products make up 98 % and more of the FLOP, and everywhere from
    those of edge = (9 H + 1.5 S) / t and slack = 2 S B."""
    sizes = _legal(grid(_axes(tensor=(4, 16, 64, 256))))
    found = maps.laws(sizes)
    products = 6 * sizes["hidden"] / (6 * sizes["hidden"] + sizes["sequence"])
    exact = {name: {key: 1.0 * power for key, power in each.items()} for name, each in EXPONENTS.items()}
    exact["edge"] |= {"hidden": products, "sequence": 1 - products}
    off = {}
    for name, slopes in found.items():
        errors = {key: np.abs(slopes[key] - power) for key, power in EXPONENTS[name].items()}
        off[name] = {key: float(error[products >= 0.98].max()) for key, error in errors.items()}
        off[f"{name}, exact form"] = {key: float(np.abs(slopes[key] - exact[name][key]).max()) for key in errors}
    return off | {"points": int(products.size), "points_of_products": int((products >= 0.98).sum())}


def _share(sizes: layer.Sizes, factor: Any, everything: bool = False) -> Any:
    """Serialized share on elementary hardware whose FLOP/s have grown by `factor`."""
    whole = layer.one_layer(sizes)
    workload = whole if everything else layer.bare(whole)
    return layer.share(layer.counted(workload, layer.elementary(factor), sizes, SEM)[1])


def _table() -> list[dict[str, Any]]:
    rows = []
    for point, published in zip(POINTS, SHARES, strict=True):
        sizes = layer.arranged(**dict(zip(("hidden", "sequence", "tensor"), map(float, point), strict=True)))
        percents = {name: [100 * float(_share(sizes, k, name == "norms too")) for k in EVOLVED] for name in _FORMS}
        rows.append({"point": point, "expected": published, **percents})
    return rows


_FORMS = ("products", "norms too")


def _overlapped() -> list[dict[str, float]]:
    """Gradient traffic over what can hide it, at large data degrees, and the growth at which it is exposed."""
    rows = []
    for tokens in (1024.0, 2048.0, 4096.0, 8192.0):
        sizes = layer.arranged(hidden=16384.0, sequence=tokens, tensor=16.0, data=1024.0)
        found = layer.counted(layer.bare(layer.one_layer(sizes)), layer.elementary(), sizes, SEM)
        crossing = maps.factor_at(layer.overlapped, 1.0, layer.elementary(), sizes)
        rows.append({"tokens": tokens, "ratio": float(layer.overlapped(*found)), "exposed_at": float(crossing)})
    return rows


def _legal(sizes: layer.Sizes) -> layer.Sizes:
    """Points with a head for each tensor rank: beyond that keys and values are held more than once."""
    allowed = sizes["hidden"] / layer.HEAD >= sizes["tensor"]
    return {name: np.broadcast_to(values, allowed.shape)[allowed] for name, values in sizes.items()}


def _grid() -> dict[str, Any]:
    """All points and trends: 272 of (hidden, sequence, batch, tensor), FLOP/s over bandwidth 1, 2 and 4 times."""
    sizes = _legal(grid(_axes(tensor=(4, 8, 16, 32, 64, 128, 256))))
    shares = {str(k): np.asarray(_share(sizes, k)) for k in EVOLVED}
    columns = sizes["hidden"] / sizes["tensor"]
    usual = (columns >= 256) & (columns <= 512)
    spread = {k: {"least": float(s[usual].min()), "most": float(s[usual].max())} for k, s in shares.items()}
    table = {**{n: v for n, v in sizes.items() if n != "data"}, **{f"share_{k}": s for k, s in shares.items()}}
    rows = [dict(zip(table, map(float, row), strict=True)) for row in zip(*table.values(), strict=True)]
    return {"points": len(rows), "usual": int(usual.sum()), "spread": spread, "rows": rows}


def _map(cluster: Any, device: str) -> dict[str, Any]:
    """Elasticities over width and tensor degree, and the ratio of FLOP/s to bandwidth that would be slow enough."""
    widths, degrees = [2.0**k for k in range(10, 17)], [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
    sizes = grid({"hidden": widths, "sequence": [4096], "tensor": degrees})
    slopes = maps.elasticities(cluster, sizes)
    shaped = {name: np.abs(each).reshape(len(widths), len(degrees)).tolist() for name, each in slopes.items()}
    return {"device": device, "hidden": widths, "tensor": degrees, "elasticities": shaped}


def _generation(name: str) -> dict[str, Any]:
    """One accelerator: FLOP a byte of its links, shares by width, and the ratios at which communication is small."""
    cluster, widths = load_cluster(name, accelerators=1024), [2.0**k for k in range(12, 17)]
    sizes = grid({"hidden": widths, "sequence": [4096], "tensor": [8]})
    apart = {**sizes, "data": 64.0}
    found = layer.counted(layer.one_layer(sizes), cluster, sizes, SEM)
    beside_data = layer.counted(layer.one_layer(apart), cluster, apart, SEM)
    peak = cluster.accelerator.peak_16bit_flop_per_s
    small = maps.factor_at(lambda _, times: layer.share(times), MATTERS, cluster, sizes)
    hidden = maps.factor_at(layer.overlapped, 1.0, cluster, apart)
    return {
        "cluster": name,
        "flop_per_byte": [peak / tier.bandwidth_bytes_per_s for tier in cluster.tiers],
        "hidden": widths,
        "share": np.asarray(layer.share(found[1])).tolist(),
        "overlapped": np.broadcast_to(layer.overlapped(*beside_data), len(widths)).tolist(),
        "small_at": [None if np.isnan(x) else float(x) for x in small],
        "hidden_at": [None if np.isnan(x) else float(x) for x in hidden],
    }


def _beside(results: Mapping[str, Any]) -> list[beside.Line]:
    """Every comparison that the paper's page lists, and its three claims."""
    return [*_laws_beside(results), *_shares_beside(results), *_projections_beside(results)]


def _laws_beside(results: Mapping[str, Any]) -> Iterator[beside.Line]:
    note = "largest over hidden, sequence, tensor and batch, where products make 98 % of the FLOP; by dual numbers"
    for law, form in (("edge", "(H + S) / t"), ("slack", "S B")):
        off = max(results["laws"][law].values())
        yield beside.line(f"{law} ~ {form}: error of an elasticity", 0.0, "D", off, allowed=(0.0, 0.02), note=note)


def _shares_beside(results: Mapping[str, Any]) -> Iterator[beside.Line]:
    for row in results["table"]:
        hidden, sequence, tensor = row["point"]
        for k, expected, ours in zip(EVOLVED, row["expected"], row["products"], strict=True):
            what = f"share serialized: H {hidden:,}, S {sequence:,}, t {tensor}, k = {k}"
            yield beside.line(what, expected, "D", ours, unit="%", allowed=(expected - 1, expected + 1))
    shares = [share for row in results["table"] for share in row["products"][1:]]
    for name, claimed, ours in (("least", 40, min(shares)), ("most", 75, max(shares))):
        what, note = f"{name} share of communication, k = 2 and 4", "the abstract: 40 to 75 % of the runtime"
        yield beside.line(what, claimed, "P", ours, unit="%", allowed=(claimed - 5, claimed + 5), note=note)
    for row in results["overlapped"]:
        expected, what = 88 * 1024 / row["tokens"], f"gradients over what hides them, {row['tokens']:,.0f} tokens"
        yield beside.line(what, expected, "D", 100 * row["ratio"], unit="%", allowed=(expected - 1, expected + 1))
    row = results["overlapped"][0]
    exposed = row["exposed_at"] * 1024 / row["tokens"]
    yield beside.line("they are exposed at k 1,024 / tokens of", 1.13, "D", exposed, allowed=(1.12, 1.15))


def _projections_beside(results: Mapping[str, Any]) -> Iterator[beside.Line]:
    own, note = results["projection"], "calibrated model as the oracle; their hundreds of scenarios are not known"
    for source, layers in (("one", "one layer"), ("few", "three")):
        error, what = (
            100 * own[f"error_{source}"]["mean"],
            f"mean error of {own['layers']} layers projected from {layers}",
        )
        yield beside.line(what, "under 15", "P", error, unit="%", allowed=(0, 15), note=note)
    note = "it follows from the grid: only the order can be compared. Whole models are steps of H / 128 layers"
    for key, what in (("saved", "whole models"), ("saved_by_layer", "one layer of each")):
        said = f"profiling saved: {what} over operators"
        yield beside.line(said, 2100, "P", own[key], allowed=(1e3, 1e12), note=note)
    for each in results["measured"]:
        what = f"median error, {each['matmuls']} measured matmuls from three, {each['hardware']} {each['dtype']}"
        yield beside.line(what, "under 15", "P", 100 * each["error_few"]["median"], unit="%", note=each["source"])


def answer(results: Mapping[str, Any]) -> list[str]:
    """Three sentences."""
    spread, own, last = results["grid"]["spread"], results["projection"], results["generations"][-1]
    low, high = (100 * spread[k][end] for k, end in (("2", "least"), ("4", "most")))
    width, share, small, matters = last["hidden"][-2], 100 * last["share"][-2], last["small_at"][-2], 100 * MATTERS
    then = "whatever its FLOP/s" if small is None else f"and would be {matters:.0f} % with {small:.2g} times the FLOP/s"
    return [
        "On elementary hardware with 2 to 4 times the FLOP/s at the same links, communication that nothing hides takes "
        f"{low:.0f} to {high:.0f} % of a layer's time where a tensor rank keeps 256 to 512 columns; the paper's "
        "abstract says 40 to 75 %.",
        f"Operators timed on one layer of {own['device']} predict {own['layers']} other layers with a mean error of "
        f"{100 * own['error_one']['mean']:.0f} %, timed on three layers of {100 * own['error_few']['mean']:.0f} %.",
        f"On 8 {last['cluster']} that share is {share:.0f} % for a layer of width {width:,.0f}, {then}.",
    ]


def failure(results: Mapping[str, Any]) -> str | None:
    """Lines outside their tolerance."""
    return beside.failed(results["beside"])


def tables(results: Mapping[str, Any]) -> Iterator[Any]:
    """What the terminal shows."""
    yield beside.table(results["beside"])
    spread, points = results["grid"]["spread"], results["grid"]
    title = f"Share serialized of {points['usual']} of {points['points']} layers: 256 to 512 columns on a rank"
    rows = [(f"{k}x", 100 * each["least"], 100 * each["most"]) for k, each in spread.items()]
    yield beside.plain_table(("FLOP/s over bandwidth", "least, %", "most, %"), rows, title)
    columns = (
        "cluster",
        "FLOP a byte",
        "width",
        "share, %",
        f"{100 * MATTERS:.0f} % at FLOP/s x",
        "gradients hidden at x",
    )
    yield beside.plain_table(columns, list(_by_width(results)), "8 tensor ranks, 4,096 tokens, calibrated")
    kinds = results["projection"]["by_kind"].items()
    rows = [(kind, 100 * each["mean"], 100 * each["p90"]) for kind, each in kinds]
    title = f"Projection from one layer, by kind of operator, {results['projection']['device']}"
    yield beside.plain_table(("kind", "mean error, %", "90th percentile, %"), rows, title)


def _by_width(results: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for each in results["generations"]:
        for width, share, small, hidden in zip(
            each["hidden"], each["share"], each["small_at"], each["hidden_at"], strict=True
        ):
            words = ("never" if small is None else small, "never" if hidden is None else hidden)
            yield each["cluster"], each["flop_per_byte"][0], f"{width:,.0f}", 100 * share, *words
