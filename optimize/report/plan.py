"""The screen of `equipoise plan`: the best plans as a table, and what stands behind the first."""

from rich.console import Console
from rich.table import Table

from costmodel.inputs import SCHEDULES
from optimize import units
from optimize.diagnosis import largest
from optimize.lattice import LEFT_OUT
from optimize.plans import PlanInputs, PlanResult, Ranked
from optimize.report.screen import new_console, new_table, say, software_line


def show_plans(inputs: PlanInputs, result: PlanResult) -> None:
    """The best plans as a table, and what stands behind the first."""
    console = new_console()
    workload, cluster, best = inputs.workload, inputs.cluster, result.plans[0]
    console.print(f"{workload.name}: {workload.batch:,} sequences of {workload.sequence:,} tokens", style="bold")
    say(console, f"on {cluster.accelerators:,} {cluster.name}, {software_line(cluster)}")
    say(console, f"{result.evaluations:,} of {result.plans_in_lattice:,} plans evaluated, {result.fitting:,} fit")
    console.print()
    console.print(_table(result))
    mesh = "; experts: expert, expert_tensor" if _divides_experts(result) else ""
    say(console, f"t,c,p,d: tensor, context, pipeline, data{mesh}; mb: sequences of a microbatch", style="dim")
    console.print()
    say(console, f"best plan: {units.shorten_runs(str(best.plan))}", style="bold")
    say(console, _bound(result))
    say(console, f"not searched: {'; '.join(LEFT_OUT)}", style="dim")
    if result.restriction is not None:
        worse = f"{units.percent(result.restriction)} worse than" if result.restriction > 1e-9 else "no worse than"
        say(console, f"with what is fixed ({_fixed(inputs)}) the best plan is {worse} the best of all plans")
    if result.simplest is not None:
        more = units.percent(result.simplest.step_s / best.step_s - 1)
        say(console, f"simplest within 1 %: {units.shorten_runs(str(result.simplest.plan))} ({more} longer)")
    validation = best.validation
    room = f"{validation.peak_bytes / 2**30:.1f} of {inputs.cluster.accelerator.hbm_bytes / 2**30:.1f} GiB"
    asked = f"asked: {units.percent(inputs.margin)}"
    say(
        console,
        f"memory: {room}, which fits with a probability of {units.percent(validation.fits_probability)} ({asked})",
    )
    for message in best.validation.messages:
        say(console, f"note: {message}")
    if result.runner_ups:
        console.print()
        console.print("the best plans of other shapes, and what would make each of them win", style="bold")
    for each in result.runner_ups:
        wins = "no one change of the machine up to 4 times either way" if each.wins_with is None else each.wins_with
        plan = units.shorten_runs(str(each.plan))
        say(console, f"  {units.percent(each.behind)} behind: {plan}; wins with {wins}")
    _show_elasticities(result, console)


def _show_elasticities(result: PlanResult, console: Console) -> None:
    console.print()
    console.print("what would shorten the best plan's step most", style="bold")
    for elasticity in largest(result.elasticities, 3):
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
        return f"stopped early: no plan searched is faster than {bound}, {units.percent(result.gap)} below this one"
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


def _table(result: PlanResult) -> Table:
    factor, unit = units.unit_for(result.plans[-1].step_s, units.SECONDS)
    experts = _divides_experts(result)
    mesh = ["experts"] if experts else []
    figures = ["", f"step {unit}", "MFU %", "GiB", "gap %"]
    table = new_table(*figures, "t,c,p,d", *mesh, "mb", "schedule", "ZeRO", "recompute", "where time goes")
    table.padding = (0, 1, 0, 0)
    for column in table.columns[7 + experts :]:
        column.justify = "left"
    for number, ranked in enumerate(result.plans, 1):
        table.add_row(*_row(number, ranked, factor, experts), style="bold" if number == 1 else None)
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
    return [str(number), *figures, *degrees, str(plan.microbatch), *_options(ranked), ranked.reason]


def _options(ranked: Ranked) -> list[str]:
    plan = ranked.plan
    schedule = SCHEDULES[plan.schedule].short or plan.schedule
    schedule += f" x{plan.virtual_stages}" if plan.virtual_stages > 1 else ""
    partial = plan.recompute != "none" and plan.recompute_share < 1
    recompute = plan.recompute + (f" {plan.recompute_share:.0%}" if partial else "")
    zero = f"{plan.zero_stage}" + (f" in {plan.data_shard}" if plan.data_shard else "")
    return [schedule if plan.pipeline > 1 else "-", zero, recompute]
