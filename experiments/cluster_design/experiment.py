"""Which cluster suits a model of a trillion parameters: more memory, compute or network, and what does a sweep miss?

After Kadiyala et al. 2022 (COMET, arXiv 2211.16648), of which the abstract and the authors' own simulator could be read
(P). The sweep and the second memory stand on assumed rates, because the table of the paper's baseline was not found.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from costmodel.specs import SpecError
from experiments import beside
from experiments.cluster_design import figures, real, simulator, sweep
from experiments.cluster_design.comparisons import beside_published
from experiments.runner import write_rows

CLUSTERS = ("a100-40gb", "a100-80gb", "h100", "h200", "b200", "gb200-nvl72", "mi300x", "tpu-v5p")
BANDWIDTHS_GB_PER_S = (5, 10, 20, 30, 50, 75, 100, 150, 200, 400, 1000, 2000)


def run(
    folder: Path,
    say: Callable[[str], None],
    *,
    template: str = "a100-80gb",
    clusters: tuple[str, ...] = CLUSTERS,
    bandwidths_gb_per_s: tuple[float, ...] = BANDWIDTHS_GB_PER_S,
    expanded: tuple[int, ...] = (4, 8, 16),
    proved: int = 40,
) -> dict[str, Any]:
    """The simulator's runs, footprints, sweep, second memory, scaling; clusters as sold, and the best at equal cost.

    Args:
        template: Whose money buys the best hardware.
        bandwidths_gb_per_s: Of the second memory, in each direction.
        expanded: MP that HBM does not hold alone; 8 is always looked at.
        proved: Plans whose best rates are solved, the fastest on the template first.
    """
    _check(expanded, proved, bandwidths_gb_per_s)
    say("sweep")
    runs = {
        name: {"published": simulator.published(table), "ours": simulator.ours(table, folder)}
        for name, table in ((name, simulator.TABLE[name]) for name in simulator.RUNS)
    }
    rates = tuple(1e9 * rate for rate in bandwidths_gb_per_s)
    results: dict[str, Any] = {
        "runs": runs,
        "network_usd": simulator.network_usd(folder),
        "bytes": simulator.byte_counts(),
        "footprints": sweep.footprints(),
        "sweep": sweep.sweep(),
        "elasticities": {str(d): sweep.elasticities(sweep.plan_of(d)) for d in (8, 64)},
    }
    say("second memory")
    results["expansion"] = [
        {"hidden": hidden, **sweep.expansion(degree, sweep.REFERENCE, rates, hidden)}
        for hidden in (True, False)
        for degree in sorted({*expanded, 8})
    ]
    results["scaling"] = sweep.scaling(1e11)
    say("clusters")
    results["clusters"] = real.comparison(clusters)
    results["equal_cost"] = real.equal_cost(template, proved)
    results["recommendation"] = real.recommendation(template, (1.0, 2.0, 4.0, 8.0))
    results["beside"] = list(beside_published(results))
    write_rows(results["sweep"], folder / "sweep.csv")
    figures.draw(results, folder)
    return results


def _check(expanded: tuple[int, ...], proved: int, bandwidths_gb_per_s: tuple[float, ...]) -> None:
    """Raise for settings that mean nothing."""
    small = [degree for degree in sweep.DEGREES if degree < sweep.REFERENCE]
    for degree in expanded:
        if degree not in small:
            allowed = ", ".join(map(str, small))
            raise SpecError(f"cluster_design: `expanded` holds {degree}; expected what 80 GB do not hold: {allowed}")
    if proved < 1 or min(bandwidths_gb_per_s, default=0.0) <= 0:
        raise SpecError("cluster_design: expected `proved` of 1 or more and `bandwidths_gb_per_s` above 0")


def answer(results: Mapping[str, Any]) -> list[str]:
    """Three sentences."""
    best = {each["hidden"]: each for each in results["expansion"] if each["degree"] == 8}
    free, exposed = best[True], best[False]
    money, found = results["equal_cost"], results["equal_cost"]["pipelines"]
    network, even = results["elasticities"]["64"]["network bandwidth"], free["breaks_even_at"]
    return [
        f"In 80 GB no model-parallel degree (MP) below {sweep.REFERENCE} fits, and 1 % more network makes that "
        f"{network:.2f} % faster; a second memory lets MP 8 fit, which is {exposed['unlimited']:.2f} to "
        f"{free['unlimited']:.2f} times as fast if that memory is fast enough, and no slower from "
        f"{even / 1e9:.0f} GB/s on where gradients are hidden (published: up to 1.4 times).",
        f"For the money of 1,024 {money['template']} ({money['budget_usd'] / 1e6:.1f} M USD) the best rates take "
        f"{found['step_s']:.1f} s a step instead of {found['now_s']:.1f}, and no rates take less than "
        f"{found['lower_bound_s']:.1f} s with the {found['plans']} plans looked at.",
        f"The sweep of MP and DP under ZeRO 2 misses ZeRO 3, which fits without a second memory: {found['now_plan']}.",
    ]


def failure(results: Mapping[str, Any]) -> str | None:
    """Lines outside their tolerance that nothing explains."""
    return beside.failed(results["beside"])


def tables(results: Mapping[str, Any]) -> Iterator[Any]:
    """What the terminal shows."""
    yield beside.table(results["beside"])
    rows = [
        (
            f"{row['tensor']}_{row['data']}",
            row["footprint_gb"],
            "yes" if row["fits"] else "no",
            row["hidden_s"],
            row["exposed_s"],
        )
        for row in results["sweep"]
    ]
    columns = ("MP_DP", "footprint, GB", "in 72 of 80 GB", "step, s", "step, gradients exposed, s")
    yield beside.plain_table(
        columns, rows, "Transformer-1T on 1,024 accelerators, ZeRO 2, assumed rates, unlimited memory"
    )
    rows = [
        (
            each["degree"],
            "hidden" if each["hidden"] else "exposed",
            each["unlimited"],
            _gb(each["breaks_even_at"]),
            _gb(each["gains_published_at"]),
        )
        for each in results["expansion"]
    ]
    columns = ("MP", "gradients", "gain, unlimited", "even at, GB/s", "1.4 at, GB/s")
    yield beside.plain_table(columns, rows, f"A second memory, over MP {sweep.REFERENCE} in HBM alone")
    rows = [
        (
            row["cluster"],
            row["sweep_s"] or "nothing fits",
            row["pipelines_s"] or "nothing fits",
            row["pipelines_plan"] or "",
        )
        for row in results["clusters"]
    ]
    yield beside.plain_table(
        ("cluster", "MP, DP: s", "and pipelines: s", "plan"), rows, "1,024 of each that is sold, calibrated"
    )
    rows = [
        (each["memory"], f"{each['accelerators']:,}", each["samples_per_s"], 100 * each["exposed"])
        for each in results["recommendation"]
    ]
    columns = ("memory of each, times", "fewest accelerators", "samples/s", "exposed, %")
    yield beside.plain_table(columns, rows, "A recommendation model of 0.8 T parameters (sizes are ours)")


def _gb(rate: float | None) -> Any:
    return "never" if rate is None else rate / 1e9
