"""Rows under people's own columns, in the known columns and their units."""

import re
from collections.abc import Mapping

from costmodel.measured.rows.headers.cells import heading, of_format
from costmodel.measured.rows.headers.column_words import COLUMN_WORDS
from costmodel.measured.rows.headers.machines import counted, may_count, of_host, of_slurm
from costmodel.measured.rows.headers.own_columns import COLUMN_OF, TO_NOTES, Meaning, meaning, understood, words_of
from costmodel.measured.rows.headers.quantities import COUNTED, with_unit
from costmodel.measured.rows.headers.rates import RATES, batch_tokens, chips_of, plain_number, step_s, tokens_of_chip
from costmodel.measured.rows.headers.spellings import CHIP
from costmodel.measured.rows.headers.whole_runs import RUN_COLUMNS, step_of_run_s, tokens_in

_FLAGS = {"1": "1", "true": "1", "yes": "1", "oom": "1", "0": "0", "false": "0", "no": "0"}
_FLOP_RATES = ("measured_mfu", "measured_tflops_per_gpu")
_MOST_OF_A_NODE = 8  # accelerators; beside no more nodes than that, more are those of all


def translated(row: Mapping[str, str]) -> dict[str, str]:
    """The row with what its own columns mean in the known ones, which count where they are there and say something."""
    given: dict[str, str] = dict(row)
    notes: list[str] = []
    meanings, row = _told_by_cells(row, understood(tuple(row)))
    for name, target in sorted(meanings.items(), key=_turn):
        cell = (row[name] or "").strip()
        if len(name.strip()) == 1 and not _SIZE.fullmatch(cell):
            continue  # a letter of papers is a size
        first, *others = target.columns
        if first == "local_batch" and any("accumulation" in each.columns for each in meanings.values()):
            first = "micro_batch"
        if others:
            _put_several(given, target.columns, cell)
        elif first not in _PUT_LATER:
            _put(given, first, cell, target.unit)
        notes += _as_notes(first, name, cell)
    if notes:
        given["notes"] = "; ".join(each for each in (given.get("notes") or "", *notes) if each.strip())
    given = _with_shards(_with_flavor(given, row, meanings), row, meanings)
    return _with_machine(_with_run(_with_convention(given, row, meanings), meanings), meanings)


_PUT_LATER = (*TO_NOTES, *RUN_COLUMNS, "flavor", "fsdp_ranks")


def _cell_of(row: Mapping[str, str], meanings: Mapping[str, Meaning], column: str) -> str:
    return next(((row[name] or "").strip() for name, each in meanings.items() if each.columns == (column,)), "")


def _with_flavor(given: dict[str, str], row: Mapping[str, str], meanings: Mapping[str, Meaning]) -> dict[str, str]:
    """The row with the flavor of its model behind the model's name."""
    model, flavor = given.get("model") or "", _cell_of(row, meanings, "flavor")
    return given if flavor.lower() in model.lower() else given | {"model": f"{model} {flavor}"}


def _with_shards(given: dict[str, str], row: Mapping[str, str], meanings: Mapping[str, Meaning]) -> dict[str, str]:
    """The row with the ranks of FSDP, which are data ranks: beside them `dp` counts their copies alone."""
    ranks, copies = plain_number(_cell_of(row, meanings, "fsdp_ranks")), plain_number(given.get("dp") or "")
    if ranks is None or (given.get("zero_stage_or_fsdp") or "").strip():
        return given
    told = given | {"zero_stage_or_fsdp": f"FSDP (group {ranks:g})" if ranks > 1 else ""}
    return told if copies is None or copies % ranks == 0 else told | {"dp": f"{copies * ranks:g}"}


def _told_by_cells(
    row: Mapping[str, str], meanings: Mapping[str, Meaning]
) -> tuple[Mapping[str, Meaning], Mapping[str, str]]:
    """The meanings with those of columns whose cells tell their units, and the row without these units."""
    more: dict[str, Meaning] = {}
    bare: dict[str, str] = {}
    taken = {column for target in meanings.values() for column in target.columns} | {*COLUMN_WORDS} & {*row}
    for name, cell in row.items():
        target, number = (None, "") if name in COLUMN_WORDS else _told_by_cell(name, (cell or "").strip(), meanings)
        if target and not taken & {*target.columns}:
            more[name], bare[name] = target, number
            taken |= {*target.columns}
    return ({**meanings, **more}, {**row, **bare}) if more else (meanings, row)


def _told_by_cell(name: str, cell: str, meanings: Mapping[str, Meaning]) -> tuple[Meaning | None, str]:
    if name.strip() == "V" and cell.isdigit() and int(cell) < _FEWEST_TOKENS:
        return Meaning(("vpp",)), cell  # beside degrees
    if name.strip().lower() == "fsdp" and cell.isdigit() and int(cell) > 1:
        return Meaning(("fsdp_ranks",)), cell
    if of_its_own := of_format(name, cell):
        return Meaning((of_its_own[0],)), of_its_own[1]
    told = None if name in meanings else heading(name, cell)
    return (meaning(told[0]), told[1]) if told else (None, "")


def _as_notes(column: str, name: str, cell: str) -> list[str]:
    """What a column tells in words; one of memory by its name, which says whether it is allocated or the device's."""
    if not cell:
        return []
    if column in TO_NOTES:
        return [TO_NOTES[column].format(cell)]
    return [words_of(name)[0]] if column == "measured_mem_GB" else []


def _with_convention(given: dict[str, str], row: Mapping[str, str], meanings: Mapping[str, Meaning]) -> dict[str, str]:
    """The row with the names of the columns of its rates, which say how FLOP are counted (`HFU`, `MFU (6ND)`)."""
    told = [given.get("flops_convention") or ""]
    for name, target in meanings.items():
        column = COLUMN_OF.get(target.columns[0], target.columns[0])
        cell = (row[name] or "").strip()
        bare = _OF_SHARE.sub("", cell)
        if column in _FLOP_RATES and bare and (given.get(column) or "").startswith(bare):
            said = _OF_SHARE.search(cell)  # `HFU 43.7 %` counts more than the column's name
            told.append(said[0] if said else name)
    return given | {"flops_convention": "; ".join(filter(None, told))} if len(told) > 1 else given


_OF_SHARE = re.compile(r"^[hm]fu\b[\s:=]*|\s*\(?[hm]fu\)?$", re.IGNORECASE)


def _with_run(given: dict[str, str], meanings: Mapping[str, Meaning]) -> dict[str, str]:
    """The row with the seconds of a step that its whole run makes, where it prints no others."""
    columns = ((name, target) for name, target in meanings.items() if target.columns[0] in RUN_COLUMNS)
    run: dict[str, tuple[str, str]] = {}
    for name, target in columns:
        run |= {target.columns[0]: (given[name] or "", target.unit)} | tokens_in(name)
    if not run or (given.get("measured_step_s") or "").strip():
        return given
    took_s = step_of_run_s(run, chips_of(given), batch_tokens(given))
    return given | {"measured_step_s": f"{took_s:.7g}" if took_s else ""}


def _with_machine(given: dict[str, str], meanings: Mapping[str, Meaning]) -> dict[str, str]:
    """The row with the accelerators' name or number out of the cell of the other, where it has no column for one."""
    if "hardware" in given and "gpus" in given:
        return _with_hosts(given, meanings)
    if ("hardware" in given) == ("gpus" in given):
        return given
    has, lacks = ("gpus", "hardware") if "gpus" in given else ("hardware", "gpus")
    named = [name for name, target in meanings.items() if target.columns == (has,)] or [has]
    hinted = any(map(may_count, named))
    if lacks == "gpus" and not hinted and counted(given[has], sure=True) is None:
        return given
    if lacks == "hardware" and any(map(_NUMBERS_ONLY.match, named)):
        return given
    both = counted(given[has])
    name, number = both or (("", given[has]) if has == "gpus" else (given[has], ""))
    return given | {"hardware": name, "gpus": number}


def _with_hosts(given: dict[str, str], meanings: Mapping[str, Meaning]) -> dict[str, str]:
    """The row with the accelerators of a machine whose name says them; a bare count of such machines counts them."""
    each, number = of_host(given["hardware"] or ""), (given["gpus"] or "").strip()
    if not each or (given.get("gpus_per_node") or "").strip():
        return given
    if number.endswith(" nodes"):
        return given | {"gpus_per_node": str(each)}
    named = {target.columns[0]: name for name, target in meanings.items()}
    counts = number.isdigit() and _COUNT.fullmatch(named.get("gpus", "")) is not None
    if counts and not _OF_CHIPS.search(named.get("hardware", "gpu")):
        return given | {"gpus": f"{number} nodes", "gpus_per_node": str(each)}
    return given


_COUNT = re.compile(r"\s*(?:#|count|qty|quantity|n|number)\s*", re.IGNORECASE)
_OF_CHIPS = re.compile(CHIP, re.IGNORECASE)
_BYTES = 1e8  # from which on a peak of memory counts them
_FEWEST_TOKENS = 64  # of a vocabulary
_NUMBERS_ONLY = re.compile(r"\W*(?:n|no|nr|num|number|count|total|world|#)", re.IGNORECASE)
_SIZE = re.compile(r"\d[\d,]*k?", re.IGNORECASE)


def _turn(named: tuple[str, Meaning]) -> int:
    """Nodes are read before what they hold, rates after what a step is."""
    column = named[1].columns[0]
    return -1 if column in ("all_gpus", "nodes", "quantization") else int(column in (*RATES, "hfu", "flavor"))


def _put(given: dict[str, str], meant: str, printed: str, unit: str) -> None:
    """The cell in its known column and unit. What is there already stays; beside several nodes, up to eight devices
    and fewer than nodes are those of one."""
    if meant == "gpus" and "hardware" not in given and printed[:1].isalpha() and counted(printed) is None:
        given["hardware"] = printed  # `Accelerators: H100`
        return
    if meant == "quantization" and printed.lower() in ("none", "no", "false", "off"):
        return
    if meant == "hardware" and (of_node := of_slurm(printed)):
        printed, given["gpus_per_node"] = of_node
    nodes, is_of_nodes, _ = (given.get("gpus") or "").partition(" nodes")
    if meant == "gpus" and is_of_nodes and printed.isdigit() and nodes.isdigit():
        of_a_node = int(nodes) > 1 and int(printed) <= max(_MOST_OF_A_NODE, int(nodes) - 1)
        meant = "gpus_per_node" if of_a_node else "all_gpus"
    if meant in ("gpus", "all_gpus") and is_of_nodes and printed:
        given["gpus"] = ""
    column, cell = _known_cell(given, meant, printed, unit) if printed else (COLUMN_OF.get(meant, meant), "")
    if meant in RATES and not cell and (rate := tokens_of_chip(given, meant, printed, unit)):
        given.setdefault("measured_tokens_per_s_per_gpu", rate)  # of steps whose batch only the row's words tell
    if cell and not (given.get(column) or "").strip():
        given[column] = cell
    given.setdefault(column, cell)


_WORDS_OF_FLAGS = {
    "recompute": {"1": "full", "0": "none"},
    "zero_stage_or_fsdp": {"1": "FSDP", "0": "none"},
    "sharded_optimizer": {"1": "distributed optimizer", "0": "none"},
    "zero": {str(stage): f"ZeRO-{stage}" for stage in range(4)},
}


def _known_cell(given: Mapping[str, str], meant: str, cell: str, unit: str) -> tuple[str, str]:
    """The known column of what a column means, and its cell there."""
    column = COLUMN_OF.get(meant, meant)
    if meant in ("nodes", "batch_tokens"):
        return column, f"{cell} {unit}{'nodes' if meant == 'nodes' else 'tokens'}"
    if column == "measured_step_s" and meant != column:
        return column, step_s(given, meant, cell, unit)
    if column == "params_B":
        return column, _billions(cell, unit)
    if column in ("recompute", "zero_stage_or_fsdp", "oom"):
        flag = _FLAGS.get(cell.lower(), cell)
        return column, _WORDS_OF_FLAGS.get(meant, {}).get(flag, flag)
    if column == "vpp" and not re.search(r"\d", cell):
        return column, ""  # whether, not how many
    if meant == "chip_memory" and not float(plain_number(cell) or 0).is_integer():  # labels are whole numbers
        column = "measured_mem_GB"
    cell = _figure(meant, cell)
    if column == "measured_mem_GB" and not unit and (plain_number(cell) or 0.0) >= _BYTES:
        return column, f"{cell} bytes"
    return column, _thousands(column, cell) if unit == "k" else with_unit(cell, unit)


def _figure(meant: str, cell: str) -> str:
    """Of memory allocated and reserved the second, which is what the allocator holds; a share without its name."""
    if meant == "two_memories":
        return re.split(r"\s*/\s*", cell)[-1]
    return _OF_SHARE.sub("", cell) if meant in ("measured_mfu", "hfu") else cell


def _thousands(column: str, cell: str) -> str:
    """A cell that counts thousands, of tokens 1,024, in ones."""
    value = plain_number(cell)
    if value is None or not cell[-1:].isdigit():
        return cell
    return f"{value * (1024 if column == 'seq' else 1000):.10g}"


def _put_several(given: dict[str, str], columns: tuple[str, ...], cell: str) -> None:
    numbers = re.findall(r"\d+", cell)
    if len(numbers) == len(columns):
        for column, number in zip(columns, numbers, strict=True):
            _put(given, column, number, "")


def _billions(cell: str, unit: str) -> str:
    """Parameters in 1e9, of which a column may count millions or each."""
    value = plain_number(cell)
    if value is None:
        return cell
    if unit in ("m", "million", "millions") and value < COUNTED:
        return f"{value / 1e3:.7g}"
    return f"{value / 1e9:.7g}" if value >= COUNTED else cell
