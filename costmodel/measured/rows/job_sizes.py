"""Sequences of a step and tokens of a sequence: as printed in any way, or what microbatches and ranks make of them."""

import math
import re
from collections.abc import Mapping

from costmodel.measured.rows.columns import Columns
from costmodel.measured.rows.degrees import degree, is_printed, printed_microbatch
from costmodel.measured.rows.headers import tokens_told
from costmodel.measured.rows.sharding import is_fully_sharded
from costmodel.measured.rows.words import clauses

OPEN_BATCH = "batch is not printed"
"""The mark of a row that says nowhere how many sequences a step has (`Case.open`)."""
_USUAL_SEQUENCE, _SHORTEST = 2048, 64  # tokens; fewer are no sequence's
# C: of a step of GPT-3 (arXiv 2005.14165, table 2.1), from 6.7B and below 1B; not more than this of a rank
_USUAL_TOKENS, _SMALL_TOKENS, _RANK_TOKENS = 4e6, 0.5e6, 16384
_AMOUNT = r"(\d[\d,]*(?:\.\d+)?)\s*([km]|million)?[\s-]*(?:tokens?|toks?)\b"
_TOKENS = re.compile(
    rf"{_AMOUNT}[\s-]*(?:per|/|a|in each|for each|global)?[\s-]*"
    r"(?:(?:global|optimi[sz]er|training)[\s-]*)?(?:batch|step|iter|update)"
    r"|(?:batch|\bg?bs)\w*(?: size)?\s*(?:of|is|has|holds|contains|totals|:|=)?\s*"
    rf"(?:about|around|roughly)?[\s(~]*{_AMOUNT}"
    rf"|(?:each|per|every) (?:batch|step|iteration)\W+(?:\w+\W+){{0,3}}?{_AMOUNT}"
    r"|tokens?[\s/]*(?:per|a|in each)?[\s-]*(?:global[\s-]*)?(?:batch|step|iter\w*)[\s:=~]*"
    r"(\d[\d,]*(?:\.\d+)?)\s*([km]|million)?\b"
)
_SEQUENCE = re.compile(
    r"(\d+)k[\s-]*(?:context|seq\w*)\b|(?:context|seq\w*)(?: len\w*| window)?(?: of)?[\s:=]*(\d+)k\b"
    r"|(?:context|seq\w*)(?: len\w*| window)?(?: of)?[\s:=]*(\d[\d,]*)\s*tok"
)
_CAPABLE = re.compile(r"\bsupport(?:s|ed|ing)? (?:a |an |up to )*$")  # of the model, not of the row
_FEWEST_TOKENS, _MOST_TOKENS = 1024, 4e8  # of a batch
_MOST_TOKENS_AT_ONCE = 2**16  # of a microbatch
_LARGE = 15.0  # 1e9 parameters, from which on layers or tensors are usually divided
_OF_A_RANK = re.compile(r"(?:per|each|local)[ -](?:gpu|device|chip|rank|accelerator)?[ -]*(?:batch)?[ \w]*$")
_OF_EACH = re.compile(
    r"\w*\s*(?:/|(?:per|on each|on every)\s)\s*(?:gpu|device|chip|rank|accelerator)\b(?![\s-](?:hour|second|type))"
)


def completed(columns: Columns, facts: Mapping[str, float]) -> tuple[Columns, tuple[str, ...]]:
    """The row with its sequence length and its batch, and what was assumed for them; `OPEN_BATCH` among the latter's
    words where nothing says the batch."""
    given: dict[str, str] = {}
    assumed: list[str] = []
    if not columns.text("seq"):
        sequence = told_sequence(columns, facts) or _USUAL_SEQUENCE
        given["seq"] = str(sequence)
        assumed.append(f"sequences of {sequence} tokens")
    own = Columns({**columns.row, **given})
    if columns.count("global_batch_sequences") is None:
        batch, told = _batch(own, facts)
        given["global_batch_sequences"] = str(batch)
        assumed.append(told)
    return Columns({**columns.row, **given}), tuple(assumed)


def told_sequence(columns: Columns, facts: Mapping[str, float]) -> int | None:
    """Tokens of a sequence as the words say them: `sequence length 4096`, `16k context`."""
    notes = "; ".join(clauses(columns.text("notes")))
    told, found = int(facts.get("sequence", 0)), _SEQUENCE.search(notes)
    if not told and found and not _CAPABLE.search(notes[: found.start()]):
        told = int(found[3].replace(",", "")) if found[3] else 1024 * int(found[1] or found[2])
    return told if told >= _SHORTEST else None


def _batch(columns: Columns, facts: Mapping[str, float]) -> tuple[int, str]:
    stages, ranks = degree(columns, facts, "pp") or 1, _data_ranks(columns, facts)
    if facts.get("global_batch"):
        return int(facts["global_batch"]), f"batch {int(facts['global_batch'])}, by its words"
    each, whole = printed_microbatch(columns, facts, stages), int(facts.get("local_batch", 0))
    each = whole if whole and not (each and facts.get("accumulation")) else each  # a rank's batch has its microbatches
    sequence, notes = columns.needed("seq"), columns.text("notes").lower()
    found, tokens = _TOKENS.search(notes), 0.0
    if found:
        of_a_rank = _OF_A_RANK.search(notes[: found.start()]) or _OF_EACH.match(notes[found.end() :])
        tokens = _tokens(found, sequence) * (ranks if of_a_rank else 1)
    times = facts.get("accumulation", 0.0) if each else 0.0
    if not times and max(_FEWEST_TOKENS, 2 * (each or 0) * sequence) <= tokens <= _MOST_TOKENS:  # fewer: a microbatch's
        batch = max(1, round(tokens / sequence))
        return batch, f"batch {batch}: {tokens / 1e6:g}M tokens a step"
    if each and (times or facts.get("local_batch")):
        batch = int(each * (times or 1.0)) * ranks
        return batch, f"batch {batch}: {each} at a time on {ranks} ranks"
    usual = _SMALL_TOKENS if (columns.number("params_B") or 1e3) < 2 else _USUAL_TOKENS
    most = max((each or 1) * (4 * stages if stages > 1 else 1), _RANK_TOKENS // sequence)
    batch = ranks * min(max(1, math.ceil(usual / sequence / ranks)), most)
    return batch, f"batch {batch}: the {OPEN_BATCH}"


def _data_ranks(columns: Columns, facts: Mapping[str, float]) -> int:
    others = math.prod(degree(columns, facts, name) or 1 for name in ("tp", "cp", "pp"))
    return degree(columns, facts, "dp") or max(1, columns.needed("gpus") // others)


def _tokens(found: re.Match[str], sequence: int) -> float:
    """`0.5M tokens per batch`, `a 4M-token batch`, `batch of 16M tokens`, `524,288 tokens per step`."""
    size, letter = next((found[i], found[i + 1]) for i in (1, 3, 5, 7) if found[i])
    return tokens_told(size, letter or "", sequence)


def told_batch(columns: Columns, facts: Mapping[str, float]) -> Mapping[str, float]:
    """The facts with a batch of which nobody says whose it is as that of a step, if every rank has a sequence of it,
    else as that of a rank; of a large model whose layout, and so whose ranks, nobody prints, as that of a step.

    Microbatches that all ranks have together are divided among them (K: nanoGPT's `gradient_accumulation_steps`)."""
    ranks, times = _data_ranks(columns, facts), facts.get("accumulation", 0.0)
    if times and facts.get("shared_accumulation") and times % ranks == 0:
        times /= ranks
        facts = {**facts, "accumulation": times}
    told = facts.get("batch")
    if told and told * (columns.number("seq") or _USUAL_SEQUENCE) > _MOST_TOKENS:
        return {name: value for name, value in facts.items() if name != "batch"}  # of tokens
    if not told or columns.text("global_batch_sequences") or "local_batch" in facts or "global_batch" in facts:
        return facts
    is_known = is_printed(columns, facts) or (columns.number("params_B") or 0.0) < _LARGE or is_fully_sharded(columns)
    is_small = told * (columns.number("seq") or _USUAL_SEQUENCE) <= _MOST_TOKENS_AT_ONCE
    of_all = ranks > 1 and told % (ranks * max(1.0, times)) == 0
    of_a_rank = is_known and (told < ranks or (times > 1 and is_small and not of_all))
    return {**facts, "local_batch" if of_a_rank else "global_batch": told}
