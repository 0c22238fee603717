"""The screen of `equipoise plan`: the best plans as a table, and what stands behind the first."""

from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from costmodel.inputs import SCHEDULES
from optimize import units
from optimize.diagnosis import by_resource, largest, step_interval_s
from optimize.plans import PlanInputs, PlanResult, Ranked
from optimize.question import SECONDS_A_DAY
from optimize.report.screen import columns_for, domain_words, new_console, new_table, say, software_line
from optimize.report.words import job_words, reason_words, term_words

_TERMS = 4  # that a step's time is told by
_WORTH: dict[str, Callable[[float], str]] = {
    "time_s": lambda value: f"time to train: {units.significant(value / SECONDS_A_DAY)} days",
    "cost_usd": lambda value: f"cost of training: {units.dollars(value)}",
    "energy_j": lambda value: f"energy to train: {units.significant(value / 3.6e9)} MWh",
    "carbon_g": lambda value: f"CO2 of training: {units.significant(value / 1e6)} t",
    "tokens_per_usd": lambda value: f"tokens a dollar: {units.scaled(value, units.COUNTS)}",
    "tokens_per_j": lambda value: f"tokens a joule: {units.significant(value)}",
}


def worth_words(objective: str, value: float) -> str:
    """What a plan is best at, in the units that people count it in."""
    return _WORTH[objective](value)


def show_plans(inputs: PlanInputs, result: PlanResult) -> None:
    """The best plans as a table, and what stands behind the first."""
    console = new_console()
    workload, cluster, best = inputs.workload, inputs.cluster, result.plans[0]
    console.print(job_words(workload), style="bold")
    say(console, f"on {cluster.accelerators:,} {cluster.name}, {software_line(cluster)}")
    of = f" of {result.plans_in_lattice:,}" if result.evaluations <= result.plans_in_lattice else ""
    say(console, f"{result.evaluations:,}{of} plans evaluated, {result.fitting:,} fit")
    console.print()
    console.print(_table(result, console.width))
    mesh = "; experts: expert, expert_tensor" if _divides_experts(result) else ""
    sharded = "; 2 in 4: ZeRO stage 2 over 4 ranks" if any(ranked.plan.data_shard for ranked in result.plans) else ""
    say(console, f"t,c,p,d: tensor, context, pipeline, data{mesh}; mb: sequences of a microbatch{sharded}", style="dim")
    console.print()
    say(console, f"best plan: {units.shorten_runs(str(best.plan))}", style="bold")
    if result.objective != "step_s":
        say(console, f"its {worth_words(result.objective, result.value)}")
    _show_best(console, inputs, best)
    say(console, _bound(result))
    say(console, f"not searched: {'; '.join(result.not_searched)}", style="dim")
    if result.restriction is not None:
        worse = f"{units.percent(result.restriction)} worse than" if result.restriction > 1e-9 else "no worse than"
        say(console, f"with what is fixed ({_fixed(inputs)}) the best plan is {worse} the best of all plans")
    if result.simplest is not None:
        more = units.percent(result.simplest.step_s / best.step_s - 1)
        say(console, f"simplest within 1 %: {units.shorten_runs(str(result.simplest.plan))} ({more} longer)")
    for message in best.validation.messages:
        say(console, f"note: {message}")
    _show_runner_ups(result, console)
    _show_elasticities(result, console)


def _show_runner_ups(result: PlanResult, console: Console) -> None:
    """How far the best plans of other shapes are behind, and the one change that puts each of them first."""
    if result.runner_ups:
        console.print()
        console.print("the best plans found of other shapes, and what would make each of them win", style="bold")
    for each in result.runner_ups:
        wins = "no rate of the machine makes it win alone, up to 4 times more or less"
        if each.wins_with is not None:
            parameter, factor = each.wins_with
            wins = f"wins with {factor:.2f} times the {parameter.words}"
        plan = units.shorten_runs(str(each.plan))
        say(console, f"  {units.percent(each.behind)} behind: {plan}; {wins}")


def _show_best(console: Console, inputs: PlanInputs, best: Ranked) -> None:
    """What stands idle beside it, how sure its time and its memory are, and what the time goes to."""
    if words := domain_words(inputs.cluster, best.plan):
        say(console, f"its accelerators: {words}")
    ends = step_interval_s(inputs.workload, inputs.cluster, best.plan, best.step_s)
    times = units.between(*ends, units.SECONDS)
    rate = units.significant(inputs.workload.batch * inputs.workload.sequence / best.step_s)
    step = units.scaled(best.step_s, units.SECONDS, 4)
    say(console, f"its step: {step}, of ten runs eight from {times}; {rate} tokens/s, MFU {units.percent(best.mfu)}")
    if best.validation.breakdown is not None:
        terms = sorted(best.validation.breakdown.terms, key=lambda term: -term.exposed_s)[:_TERMS]
        shares = (f"{term_words(term.name)} {units.percent(term.exposed_s / best.step_s)}" for term in terms)
        say(console, f"its time: {'; '.join(shares)}")
    room = f"{best.peak_bytes / 2**30:.1f} of {inputs.cluster.accelerator.hbm_bytes / 2**30:.1f} GiB"
    sure = units.probability(best.validation.fits_probability)
    asked = f"asked: {units.percent(inputs.margin)}"
    say(console, f"its memory: {room}, which fits with a probability of {sure} ({asked})")


def _show_elasticities(result: PlanResult, console: Console) -> None:
    console.print()
    console.print("what would shorten the best plan's step most", style="bold")
    for elasticity in largest(by_resource(result.elasticities), 3):
        more = "more" if elasticity.parameter.rate else "less"
        say(console, f"  10 % {more} {elasticity.parameter.words}: {units.percent(-elasticity.tenth)} shorter")


def _fixed(inputs: PlanInputs) -> str:
    return ", ".join(f"{name}={value}" for name, value in inputs.fixed.items())


def _divides_experts(result: PlanResult) -> bool:
    """Whether any of the plans divides experts."""
    return any(ranked.plan.expert * ranked.plan.expert_tensor > 1 for ranked in result.plans)


def _bound(result: PlanResult) -> str:
    if result.status.name == "incomplete":
        bound = units.scaled(result.lower_bound_s, units.SECONDS)
        better = "no plan searched is better" if result.gap == 0 else f"no plan searched takes less than {bound}"
        return f"interrupted: the best so far, not all that is told of it; {better}"
    if result.gap == 0:
        how = (
            "all were evaluated"
            if result.evaluations == result.plans_in_lattice
            else "the others are bounded from below"
        )
        return f"no plan searched that fits is better: {how}"
    return (
        f"no plan is more than {units.percent(result.gap)} better (lower bound {units.significant(result.lower_bound)})"
    )


def _table(result: PlanResult, width: int) -> Table:
    """As many columns as there is room for; digits are never cut."""
    factor, unit = units.unit_for(result.plans[-1].step_s, units.SECONDS)
    experts = _divides_experts(result)
    names = ["", f"step {unit}", "MFU %", "GiB", "gap %", "t,c,p,d", *(["experts"] if experts else []), "mb"]
    names += ["schedule", "ZeRO", "recompute", "where time goes"]
    rows = [_row(number, ranked, factor, experts) for number, ranked in enumerate(result.plans, 1)]
    wide = [max(map(len, column)) + 1 for column in zip(names, *rows, strict=True)]
    kept = columns_for(wide, width, map(names.index, ("where time goes", "gap %", "mb", "recompute", "GiB")))
    table = new_table(*(names[i] for i in kept))
    table.padding = (0, 1, 0, 0)
    for column, i in zip(table.columns, kept, strict=True):
        column.justify = "left" if names[i] in ("", "schedule", "ZeRO", "recompute", "where time goes") else "right"
    for number, cells in enumerate(rows):
        table.add_row(*(cells[i] for i in kept), style=None if number else "bold")
    return table


def _row(number: int, ranked: Ranked, factor: float, experts: bool) -> list[str]:
    plan = ranked.plan
    figures = [
        units.significant(ranked.step_s / factor, 4),
        f"{100 * ranked.mfu:.1f}",
        f"{ranked.peak_bytes / 2**30:.1f}",
        f"{100 * ranked.gap:.2f}",
    ]
    degrees = [f"{plan.tensor},{plan.context},{plan.pipeline},{plan.data}"]
    degrees += [f"{plan.expert},{plan.expert_tensor}"] if experts else []
    return [str(number), *figures, *degrees, str(plan.microbatch), *_options(ranked), reason_words(ranked.reason)]


def _options(ranked: Ranked) -> list[str]:
    plan = ranked.plan
    schedule = SCHEDULES[plan.schedule].short or plan.schedule
    schedule += f" x{plan.virtual_stages}" if plan.virtual_stages > 1 else ""
    partial = plan.recompute != "none" and plan.recompute_share < 1
    recompute = plan.recompute + (f" {plan.recompute_share:.0%}" if partial else "")
    zero = f"{plan.zero_stage}" + (f" in {plan.data_shard}" if plan.data_shard else "")
    return [schedule if plan.pipeline > 1 else "-", zero, recompute]
