"""What people read, and the files of `--out`: the only place here that formats, prints or writes."""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimize import units
from optimize.status import CommandError, Status

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from optimize.clusters import DesignInputs, DesignResult
    from optimize.diagnosis import Explanation, Stage
    from optimize.plans import PlanInputs, PlanResult

_MEMORY_WORDS = {"optimizer": "optimizer states", "gathered": "gathered weights", "outside": "context, workspace"}
_NARROWEST, _WIDEST = 80, 110  # columns: below, words are lost; beyond, eyes lose the row


def print_json(answer: Mapping[str, Any]) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(_json(answer))


def _json(answer: Mapping[str, Any]) -> str:
    return json.dumps(answer, indent=2, allow_nan=False) + "\n"


def _console() -> "Console":
    """Colour on a terminal only; 100 columns where nobody says how many there are."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False, markup=False, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 100
    console.width = max(_NARROWEST, min(console.width, _WIDEST))
    return console


def _table(*headers: str, left: int = 1) -> "Table":
    """Aligned columns without lines: the first `left` to the left, the others to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, header in enumerate(headers):
        table.add_column(header, justify="left" if index < left else "right", no_wrap=True, overflow="ellipsis")
    return table


def show_explanation(explanation: "Explanation") -> None:
    """The one-screen answer."""
    console = _console()
    _show_header(console, explanation)
    console.print()
    console.print(_time_table(console, explanation))
    console.print()
    console.print(_memory_table(explanation))
    _show_margin(console, explanation)
    console.print()
    _show_money(console, explanation)
    _show_elasticities(console, explanation)


def show_comparison(first: "Explanation", second: "Explanation") -> None:
    """Two answers side by side."""
    from optimize.report import against as _report_against

    _report_against.show(first, second, _console(), _say, _table)


def show_plans(inputs: "PlanInputs", result: "PlanResult") -> None:
    """The best plans."""
    from optimize.report import plan as _report_plan

    _report_plan.show(inputs, result, _console(), _say, _table)


def _show_money(console: "Console", explanation: "Explanation") -> None:
    from optimize.report.money import money_lines, money_table

    found, cluster = explanation.breakdown.economics, explanation.inputs.cluster
    if found is None or cluster.prices is None:
        return
    console.print(money_table(found, cluster.prices.date, _table))
    for line in money_lines(found, cluster):
        _say(console, line)
    console.print()


def _show_header(console: "Console", explanation: "Explanation") -> None:
    inputs, found = explanation.inputs, explanation.breakdown
    workload, cluster, chip = inputs.workload, inputs.cluster, inputs.cluster.accelerator
    tiers = ", ".join(f"{t.name} {units.rate(t.bandwidth_bytes_per_s, 'B/s')}" for t in cluster.tiers)
    console.print(f"{workload.name}: {workload.batch:,} sequences of {workload.sequence:,} tokens", style="bold")
    _say(
        console,
        f"on {cluster.accelerators:,} {cluster.name}: {units.rate(chip.peak_16bit_flop_per_s, 'FLOP/s')} (16 bit), "
        f"{units.scaled(chip.hbm_bytes, units.BYTES)} at {units.rate(chip.hbm_bytes_per_s, 'B/s')}; {tiers}",
    )
    _say(console, f"plan {units.shorten_runs(str(inputs.plan))}")
    if inputs.chosen:
        _say(console, f"     chosen here: {inputs.chosen} (not for speed)", style="dim")
    if inputs.unread:
        _say(console, f"     not read, and may change the cost: {', '.join(inputs.unread)}", style="dim")
    console.print()
    each = units.significant(found.tokens_per_s / cluster.accelerators)
    hfu = f"   HFU {units.percent(found.hfu)}" if found.hfu > found.mfu else ""
    console.print(
        f"step {units.scaled(found.step_s, units.SECONDS, 4)}   {units.significant(found.tokens_per_s)} tokens/s "
        f"({each} per accelerator)   MFU {units.percent(found.mfu)}{hfu}",
        style="bold",
    )
    from costmodel.formulas import MFU_CONVENTION

    _say(console, f"MFU: {MFU_CONVENTION}", style="dim")


def _say(console: "Console", text: str, style: str | None = None) -> None:
    """Text that goes on under itself, indented, where the line ends."""
    import textwrap

    for line in textwrap.wrap(text, console.width, subsequent_indent="     ", drop_whitespace=True):
        console.print(line, style=style)


def _time_table(console: "Console", explanation: "Explanation") -> "Table":
    from optimize.diagnosis import limiting

    step_s, terms = explanation.breakdown.step_s, explanation.breakdown.terms
    factor, unit = units.unit_for(step_s, units.SECONDS)
    decimals = 3 if step_s / factor < 100 else 1
    table = _table("time", f"exposed {unit}", f"hidden {unit}", "of step", "", "limited by")
    table.columns[4].justify = table.columns[5].justify = "left"
    ascii_only, wide = console.options.ascii_only, console.width - 74
    full, parts = ("#", "") if ascii_only else ("█", "▏▎▍▌▋▊▉")
    for term in terms:
        limited_by = limiting(term)
        if limited_by is None:
            continue
        share = term.exposed_s / step_s
        hidden = units.fixed(term.hidden_s / factor, decimals) if term.hidden_s > 1e-9 * step_s else ""
        drawn = units.bar(share, wide, full, parts)
        exposed = units.fixed(term.exposed_s / factor, decimals)
        table.add_row(term.name, exposed, hidden, units.percent(share), drawn, limited_by)
    table.add_row("step", units.fixed(step_s / factor, decimals), "", "100.0 %", "", "", style="bold")
    return table


def _memory_table(explanation: "Explanation") -> "Table":
    shown = _stages_to_show(explanation)
    table = _table("memory, GiB", *(_stage_title(stage, explanation) for stage in shown))
    names = [name for name in shown[0].terms if any(stage.terms[name] > 0 for stage in shown)]
    for name in names:
        table.add_row(_MEMORY_WORDS.get(name, name), *(_gib(stage.terms[name]) for stage in shown))
    limit_bytes = explanation.breakdown.limit_bytes
    table.add_row("peak", *(_gib(stage.peak_bytes) for stage in shown), style="bold")
    table.add_row(f"margin to {_gib(limit_bytes)}", *(_gib(limit_bytes - stage.peak_bytes) for stage in shown))
    if explanation.second_bytes > 0:
        _add_second_memory(table, shown, explanation.breakdown.second_limit_bytes)
    return table


def _add_second_memory(table: "Table", shown: list["Stage"], limit_bytes: float) -> None:
    for name in shown[0].second:
        if any(stage.second[name] > 0 for stage in shown):
            table.add_row(f"second memory: {name}", *(_gib(stage.second[name]) for stage in shown))
    table.add_row(f"margin there to {_gib(limit_bytes)}", *(_gib(limit_bytes - stage.second_bytes) for stage in shown))


def _stages_to_show(explanation: "Explanation") -> list["Stage"]:
    """The first, the second, the last, the fullest and the one that offloads most, in order."""
    stages = explanation.stages
    most = max(stages, key=lambda stage: stage.second_bytes).number
    numbers = {1, min(2, len(stages)), len(stages), explanation.fullest.number, most}
    return [stage for stage in stages if stage.number in numbers]


def _stage_title(stage: "Stage", explanation: "Explanation") -> str:
    return f"stage {stage.number} of {len(explanation.stages)}" if len(explanation.stages) > 1 else "each accelerator"


def _gib(size_bytes: float) -> str:
    return units.fixed(size_bytes / 2.0**30, 2)


def _show_margin(console: "Console", explanation: "Explanation") -> None:
    found, fullest = explanation.breakdown, explanation.fullest
    margin_bytes = found.limit_bytes - fullest.peak_bytes
    where = f"in the {fullest.moment}" + (f" of stage {fullest.number}" if len(explanation.stages) > 1 else "")
    share, size = units.percent(abs(margin_bytes) / found.limit_bytes), units.scaled(abs(margin_bytes), units.BYTES)
    if not explanation.second_fits:
        over_bytes = explanation.second_bytes - found.second_limit_bytes
        _say(console, f"the second memory is too small by {units.scaled(over_bytes, units.BYTES)}", "bold red")
    if margin_bytes >= 0:
        _say(console, f"fits in memory: the peak, {where}, is {size} ({share}) below the limit", style="green")
    else:
        _say(console, f"does not fit in memory: the peak, {where}, is {size} ({share}) over the limit", "bold red")


def _show_elasticities(console: "Console", explanation: "Explanation") -> None:
    from optimize.diagnosis import largest

    console.print("what would shorten the step most (elasticity: % of the step for 1 % of it)", style="bold")
    for elasticity in largest(explanation.elasticities, 3):
        better, value = "more" if elasticity.parameter.rate else "less", elasticity.value
        change = f"10 % {better} {elasticity.parameter.words}"
        told = f"[{value[0]:.3f}, {value[1]:.3f}]" if isinstance(value, list) else f"{value:.3f}"
        _say(console, f"  {change} would make the step {units.percent(-elasticity.tenth)} shorter ({told})")


def progress(command: str) -> Callable[[str], None]:
    """Prints what a command is at on standard error, where that is a terminal and more than a second has passed."""
    start = time.monotonic()

    def told(words: str) -> None:
        if sys.stderr.isatty() and time.monotonic() > start + 1.0:
            print(f"equipoise {command}: {words}", file=sys.stderr)

    return told


def show_design(inputs: "DesignInputs", result: "DesignResult") -> None:
    """Both answers side by side."""
    from optimize.report import design as _report_design

    _report_design.show(inputs, result, _console(), _say, _table)


def show_models(models: list[dict[str, Any]]) -> None:
    """A table of models."""
    from optimize.report.lists import models_table

    _console().print(models_table(models, _table))


def show_clusters(clusters: list[dict[str, Any]]) -> None:
    """A table of clusters."""
    from optimize.report.lists import clusters_table

    _console().print(clusters_table(clusters, _table))


def check_directory(directory: Path) -> None:
    """Raise where `--out` cannot be written, before anything is computed."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _beside(directory):
            usable = not directory.exists() or (directory.is_dir() and os.access(directory, os.W_OK))
    except (OSError, ValueError) as error:
        raise _unwritable(directory, getattr(error, "strerror", None) or str(error)) from None
    if not usable:
        raise _unwritable(directory, "it is a file, or closed")


def _unwritable(directory: Path, reason: str) -> CommandError:
    message = f"command line: `out` is {ascii(str(directory))}; expected a directory that can be written ({reason})"
    return CommandError(Status.bad_input, message)


@contextlib.contextmanager
def _beside(directory: Path) -> Iterator[Path]:
    """A directory under a temporary name on the same file system, gone afterwards whatever happens."""
    temporary = directory.parent / f".{directory.name}.{os.getpid()}.tmp"
    temporary.mkdir()
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write(directory: Path, answer: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """`result.json` and the files beside it: all written under a temporary name, then renamed, the result last."""
    content = {**files, "result.json": _json(answer).encode()}
    with _beside(directory) as temporary:
        for name, data in content.items():
            (temporary / name).write_bytes(data)
        if not directory.exists():
            temporary.rename(directory)
            return
        for name in content:
            os.replace(temporary / name, directory / name)
