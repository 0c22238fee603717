"""The screen of `equipoise explain`: time by term, memory by stage, money, and what would shorten the step most."""

from rich.console import Console
from rich.table import Table

from costmodel.formulas import MFU_CONVENTION, Breakdown
from costmodel.inputs import Workload, active_parameters, parameters
from optimize import units
from optimize.diagnosis import Explanation, StagePeak, by_resource, largest, limiting, time_to_target
from optimize.report.money import money_lines, money_table
from optimize.report.screen import domain_words, new_console, new_table, say, software_line
from optimize.report.words import job_words, limit_words, memory_words, term_words

BESIDE_BARS = 74  # columns of the table of times beside its bars


def show_explanation(explanation: Explanation, interval: bool = True) -> None:
    """The one-screen answer; what does not fit is said first. `interval`: whether that of the step is told."""
    console = new_console()
    if not explanation.fits:
        say(
            console,
            f"DOES NOT FIT in memory: {_shortage(explanation)}; the time is that of a machine with more",
            "bold red",
        )
    _show_header(console, explanation, interval)
    console.print()
    console.print(time_table(explanation.breakdown, console.width - BESIDE_BARS, console.options.ascii_only))
    console.print()
    console.print(_memory_table(explanation))
    _show_margin(console, explanation)
    console.print()
    _show_money(console, explanation)
    _show_target(console, explanation)
    _show_elasticities(console, explanation)


def _show_money(console: Console, explanation: Explanation) -> None:
    economics, cluster = explanation.breakdown.economics, explanation.inputs.cluster
    if economics is None or cluster.prices is None:
        return
    console.print(money_table(economics, cluster.prices.date))
    for line in money_lines(economics, cluster):
        say(console, line)
    console.print()


def _show_target(console: Console, explanation: Explanation) -> None:
    """Days, dollars and CO2 to the loss that was asked for."""
    found = time_to_target(explanation.inputs, explanation.breakdown)
    if found is None:
        return
    loss = "" if found["loss"] is None else f"loss {found['loss']:g} ({found['law']}): "
    told = f"{loss}{units.scaled(found['tokens'], units.COUNTS)} tokens"
    days = units.significant(found["train_s"] / 86_400.0)
    console.print(f"{told}, {found['steps']:,.0f} steps, {days} days", style="bold")
    spent = [f"goodput {units.percent(found['goodput'])}"]
    spent += [] if found["usd"] is None else [units.dollars(found["usd"])]
    for key, scale, unit in (("joule", 3.6e9, "MWh"), ("carbon_g", 1e6, "t CO2")):
        if found[key] is not None:
            spent.append(f"{units.significant(found[key] / scale)} {unit}")
    say(console, ", ".join(spent))
    if found["deadline_probability"] is not None:
        by, odds = units.significant(found["deadline_s"] / 86_400.0), found["deadline_probability"]
        say(console, f"it ends within {by} days with a probability of {units.probability(odds)}")
    console.print()


def _shortage(explanation: Explanation) -> str:
    over_bytes = explanation.fullest.peak_bytes - explanation.breakdown.limit_bytes
    if over_bytes <= 0:
        return "the second memory is too small"
    asked = explanation.inputs.margin
    sure = "" if asked == 0.5 else f" to fit with a probability of {units.percent(asked)}"
    return f"{units.scaled(over_bytes, units.BYTES)} too much on the fullest stage{sure}"


def _show_header(console: Console, explanation: Explanation, interval: bool) -> None:
    inputs, breakdown = explanation.inputs, explanation.breakdown
    workload, cluster, chip = inputs.workload, inputs.cluster, inputs.cluster.accelerator
    tiers = ", ".join(f"{t.name} {units.rate(t.bandwidth_bytes_per_s, 'B/s')}" for t in cluster.tiers)
    say(console, f"{job_words(workload)}, {software_line(cluster)}", "bold")
    say(
        console,
        f"on {cluster.accelerators:,} {cluster.name}: {units.rate(chip.peak_16bit_flop_per_s, 'FLOP/s')} (16 bit), "
        f"{units.scaled(chip.hbm_bytes, units.BYTES)} at {units.rate(chip.hbm_bytes_per_s, 'B/s')}; {tiers}",
    )
    say(console, f"plan {units.shorten_runs(str(inputs.plan))}")
    if inputs.chosen:
        say(console, f"     chosen here: {inputs.chosen} (equipoise plan searches them all)", style="dim")
    if words := domain_words(cluster, inputs.plan):
        say(console, f"     {words}")
    if inputs.unread:
        say(console, f"     not read, and may change the cost: {', '.join(inputs.unread)}", style="dim")
    each = units.significant(breakdown.tokens_per_s / cluster.accelerators)
    hfu = f"   HFU {units.percent(breakdown.hfu)}" if breakdown.hfu > breakdown.mfu else ""
    say(
        console,
        f"step {units.scaled(breakdown.step_s, units.SECONDS, 4)}   "
        f"{units.significant(breakdown.tokens_per_s)} tokens/s "
        f"({each} per accelerator)   MFU {units.percent(breakdown.mfu)}{hfu}",
        style="bold",
    )
    if interval:
        ends = units.between(*explanation.step_interval_s, units.SECONDS)
        sure = units.probability(explanation.fits_probability)
        asked = f" (asked: {units.percent(inputs.margin)})" if inputs.margin != 0.5 else ""
        say(console, f"of ten runs eight from {ends}; probability of fitting in memory {sure}{asked}")
    say(console, f"MFU: {MFU_CONVENTION}; the model: {_size(workload)}", style="dim")


def _size(workload: Workload) -> str:
    """How many parameters, and how many of them work on a token: a config.json that is misread shows here."""
    every, active = (units.scaled(float(count(workload)), units.COUNTS) for count in (parameters, active_parameters))
    return f"{every} parameters" + (f", {active} of them active at a token" if active != every else "")


def time_table(breakdown: Breakdown, wide: int, ascii_only: bool = False) -> Table:
    """Time by term with what limits each; `wide`: characters of the bars of their shares."""
    step_s = float(breakdown.step_s)
    factor, unit = units.unit_for(step_s, units.SECONDS)
    decimals = units.decimals_of(step_s / factor)
    table = new_table("time", f"exposed {unit}", f"hidden {unit}", "of step", "", "limited by")
    table.columns[4].justify = table.columns[5].justify = "left"
    full, parts = ("#", "") if ascii_only else ("█", "▏▎▍▌▋▊▉")
    for term in breakdown.terms:
        limited_by = limiting(term)
        if limited_by is None:
            continue
        exposed_s, hidden_s = float(term.exposed_s), float(term.hidden_s)
        share = exposed_s / step_s
        hidden = units.fixed(hidden_s / factor, decimals) if hidden_s > 1e-9 * step_s else ""
        drawn, exposed = units.bar(share, wide, full, parts), units.fixed(exposed_s / factor, decimals)
        cells = (term_words(term.name), exposed, hidden, units.percent(share), drawn, limit_words(limited_by))
        table.add_row(*cells)
    table.add_row("step", units.fixed(step_s / factor, decimals), "", "100.0 %", "", "", style="bold")
    return table


def _memory_table(explanation: Explanation) -> Table:
    shown = _stages_to_show(explanation)
    table = new_table("memory, GiB", *(_stage_title(stage, explanation) for stage in shown))
    rows = {name: [stage.terms[name] for stage in shown] for name in shown[0].terms}
    buffers = rows.pop("buffers")
    rows["outside"] = [sum(both) for both in zip(rows["outside"], buffers, strict=True)]  # one row: no tensors
    for name, row in rows.items():
        if any(row):
            table.add_row("driver, buffers" if name == "outside" else memory_words(name), *map(_gib, row))
    limit_bytes = explanation.breakdown.limit_bytes
    table.add_row("peak", *(_gib(stage.peak_bytes) for stage in shown), style="bold")
    table.add_row(f"margin to {_gib(limit_bytes)}", *(_gib(limit_bytes - stage.peak_bytes) for stage in shown))
    if explanation.second_bytes > 0:
        _add_second_memory(table, shown, explanation.breakdown.second_limit_bytes)
    return table


def _add_second_memory(table: Table, shown: list[StagePeak], limit_bytes: float) -> None:
    rows = {name: [stage.second[name] for stage in shown] for name in shown[0].second}
    gradients = rows.pop("gradients")
    rows["optimizer"] = [
        sum(both) for both in zip(rows["optimizer"], gradients, strict=True)
    ]  # one row: they go together
    for name, row in rows.items():
        if any(row):
            beside = ", gradients" if name == "optimizer" and any(gradients) else ""
            table.add_row(f"second memory: {name}{beside}", *map(_gib, row))
    table.add_row(f"margin there to {_gib(limit_bytes)}", *(_gib(limit_bytes - stage.second_bytes) for stage in shown))


def _stages_to_show(explanation: Explanation) -> list[StagePeak]:
    """The first, the second, the last, the fullest and the one that offloads most, in order."""
    stages = explanation.stages
    most = max(stages, key=lambda stage: stage.second_bytes).number
    numbers = {1, min(2, len(stages)), len(stages), explanation.fullest.number, most}
    return [stage for stage in stages if stage.number in numbers]


def _stage_title(stage: StagePeak, explanation: Explanation) -> str:
    return f"stage {stage.number} of {len(explanation.stages)}" if len(explanation.stages) > 1 else "each accelerator"


def _gib(size_bytes: float) -> str:
    return units.fixed(size_bytes / 2.0**30, 2)


def _show_margin(console: Console, explanation: Explanation) -> None:
    breakdown, fullest = explanation.breakdown, explanation.fullest
    margin_bytes = breakdown.limit_bytes - fullest.peak_bytes
    where = f"in the {fullest.moment}" + (f" of stage {fullest.number}" if len(explanation.stages) > 1 else "")
    share = units.percent(abs(margin_bytes) / breakdown.limit_bytes)
    size = f"{units.significant(abs(margin_bytes) / 2.0**30)} GiB"  # as in the table above
    logged = f"reserved {_gib(fullest.reserved_bytes)}, allocated {_gib(fullest.allocated_bytes)} GiB"
    if not explanation.second_fits:
        over_bytes = explanation.second_bytes - breakdown.second_limit_bytes
        say(console, f"the second memory is too small by {units.scaled(over_bytes, units.BYTES)}", "bold red")
    if margin_bytes >= 0:
        told = f"fits in memory: the peak, {where}, is {size} ({share}) below the limit; {logged}"
        say(console, told, style="green")
    else:
        say(
            console,
            f"does not fit in memory: the peak, {where}, is {size} ({share}) over the limit; {logged}",
            "bold red",
        )


def _show_elasticities(console: Console, explanation: Explanation) -> None:
    console.print("what would shorten the step most (elasticity: % of the step for 1 % of it)", style="bold")
    for elasticity in largest(by_resource(explanation.elasticities), 3):
        better, value = "more" if elasticity.parameter.rate else "less", elasticity.value
        change = f"10 % {better} {elasticity.parameter.words}"
        sides = f"[{value[0]:.3f}, {value[1]:.3f}]" if isinstance(value, list) else f"{value:.3f}"
        say(console, f"  {change} would make the step {units.percent(-elasticity.tenth)} shorter ({sides})")
