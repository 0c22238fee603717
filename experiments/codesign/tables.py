"""What the terminal shows: the answers side by side, their plans, the frontier and what more would buy."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from costmodel.inputs import Plan
from optimize import units
from optimize.question import SECONDS_A_DAY

Answer = Mapping[str, Any]


def _gap(gap: float) -> str:
    """A gap in per cent; what rounding left is 0."""
    return units.significant(100 * gap, 2 if gap < 1 else 3) if gap > 1e-9 else "0"


_ROWS: tuple[tuple[str, Callable[[Answer], str]], ...] = (
    ("accelerators bought", lambda a: f"{a['cluster']['accelerators']:,.0f}"),
    ("16-bit FLOP/s each", lambda a: units.rate(a["cluster"]["flop_per_s"], "")),
    ("HBM each", lambda a: units.scaled(a["cluster"]["hbm_bytes"], units.BYTES)),
    ("HBM bandwidth", lambda a: units.rate(a["cluster"]["hbm_bytes_per_s"], "B/s")),
    ("scale-up bandwidth", lambda a: units.rate(a["cluster"]["scale_up_bytes_per_s"], "B/s")),
    ("scale-up domain", lambda a: f"{a['cluster']['domain']:,}"),
    ("scale-out bandwidth", lambda a: units.rate(a["cluster"]["scale_out_bytes_per_s"], "B/s")),
    ("purchase, M USD", lambda a: units.significant(a["cluster"]["capital_usd"] / 1e6)),
    ("power at the meter", lambda a: units.rate(a["cluster"]["meter_w"], "W")),
    ("step", lambda a: units.scaled(a["jobs"][0]["step_s"], units.SECONDS, 4)),
    ("MFU", lambda a: units.percent(a["jobs"][0]["mfu"])),
    ("days to train", lambda a: units.significant(a["value"] / SECONDS_A_DAY, 4)),
    ("no answer has fewer days than", lambda a: units.significant(a["lower_bound"] / SECONDS_A_DAY, 4)),
    ("gap", lambda a: f"{_gap(a['gap'])} %"),
)


def plan_words(fields: Mapping[str, Any]) -> str:
    """What differs from the defaults, on one line."""
    layers = fields["stage_layers"]
    plan = Plan(**{**fields, "stage_layers": None if layers is None else tuple(layers)})
    return units.shorten_runs(str(plan))


def tables(results: Mapping[str, Any]) -> Iterator[Any]:
    """All of them, from what result.json holds."""
    yield _answers(results)
    yield _plans(results)
    yield _frontier(results)
    yield _more(results)
    yield _robust(results)


def _kinds(results: Mapping[str, Any]) -> Iterator[tuple[str, str, Answer]]:
    """Model, what its cluster is made of, and the answer."""
    for name, model in results["models"].items():
        for key, words in (("continuous", "rates of any size"), ("catalogue", "real parts")):
            if model[key] is not None:
                own = words if key == "continuous" else model[key]["cluster"]["name"]
                yield name, own, model[key]


def _answers(results: Mapping[str, Any]) -> Any:
    from rich.table import Table

    shown = list(_kinds(results))
    title = (
        f"{results['tokens'] / 1e12:g} T tokens within {units.significant(results['budget_usd'] / 1e6)} M USD "
        f"(capital) and {results['power_mw']:g} MW at the meter, each model alone"
    )
    table = Table("", *(f"{name}\n{own}" for name, own, _ in shown), title=title, title_justify="left")
    for label, text in _ROWS:
        table.add_row(label, *(text(answer) for _, _, answer in shown))
    return table


def _plans(results: Mapping[str, Any]) -> Any:
    """Plans, and notes of what was left out or found nothing."""
    from rich.table import Table

    table = Table("", "", "plan", title="Plans", title_justify="left")
    for name, own, answer in _kinds(results):
        table.add_row(name, own, plan_words(answer["jobs"][0]["plan"]))
    for name, model in results["models"].items():
        for note in model["notes"]:
            table.add_row(name, "note", note)
    return table


def _frontier(results: Mapping[str, Any]) -> Any:
    from rich.table import Table

    title = f"Frontier: days over capital, at most {results['power_mw']:g} MW"
    columns = ("model", "M USD", "days", "no fewer than", "gap %", "accelerators")
    table = Table(*columns, title=title, title_justify="left")
    for name, model in results["models"].items():
        for point in model["frontier"]:
            budget = units.significant(point["budget_usd"] / 1e6)
            if point["value"] is None:
                table.add_row(name, budget, "nothing is feasible", "", "", "")
                continue
            days = (units.significant(point[key] / SECONDS_A_DAY, 4) for key in ("value", "lower_bound"))
            table.add_row(name, budget, *days, _gap(point["gap"]), f"{point['accelerators']:,.0f}")
    return table


def _more(results: Mapping[str, Any]) -> Any:
    """Shadow prices in words."""
    from rich.table import Table

    table = Table("", "at the best cluster of any rates", title="What more would buy", title_justify="left")
    for name, model in results["models"].items():
        prices = {} if model["continuous"] is None else model["continuous"]["shadow_prices"]
        for price in prices.values():
            table.add_row(name, price["words"])
    return table


_SHARES: tuple[tuple[str, Callable[[Answer], str]], ...] = (
    ("draws of prices and constants", lambda j: f"{j['draws']:,}"),
    ("plans that take part", lambda j: f"{j['candidates']:,}"),
    ("the same plan and number win in", lambda j: units.percent(j["same_plan"])),
    ("the same number wins in", lambda j: units.percent(j["same_count"])),
    ("lost by the plan, its rates chosen anew: median, 90 %, worst", lambda j: _lost(j["loss_of_plan"])),
    ("lost by the cluster as bought, for its money and power", lambda j: _lost(j["loss_of_cluster"])),
    ("a loss may be more by, at most", lambda j: f"{100 * j['unproved']:.2g} %"),
    ("days on it: 10 %, median, 90 %", lambda j: ", ".join(units.significant(day, 3) for day in j["days"].values())),
)


def _lost(spread: Mapping[str, float]) -> str:
    return ", ".join(f"{100 * value:.1f} %" for value in spread.values())


def _robust(results: Mapping[str, Any]) -> Any:
    """How sure the cluster of any rates is."""
    from rich.table import Table

    judged = {name: model["robustness"] for name, model in results["models"].items() if model["robustness"]}
    table = Table("", *judged, title="Under other prices and constants of the software", title_justify="left")
    for label, text in _SHARES:
        table.add_row(label, *(text(each) for each in judged.values()))
    for place in range(3):
        others = [[w for w in each["winners"] if not w["chosen"]] for each in judged.values()]
        told = [_winner(each[place]) if place < len(each) else "" for each in others]
        if any(told):
            table.add_row("another winner", *told)
    return table


def _winner(each: Mapping[str, Any]) -> str:
    return f"{units.percent(each['share'])}: {each['accelerators']:,}, {plan_words(each['plan'])}"
