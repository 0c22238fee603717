"""Every phrase of the reader, and the sources whose rows are read differently without it."""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from costmodel.measured.rows import Case, Unreadable, case, choices
from costmodel.measured.rows.notes import facts_of
from costmodel.measured.rows.words import grammar, meanings

_CHOICES = (
    "SOFTWARE_NAMES",
    "SHARDINGS",
    "PRECISIONS",
    "SUBMISSIONS",
    "GRADIENTS",
    "OPTIMIZERS",
    "STATES",
    "DISPATCHERS",
    "ATTENTIONS",
    "RECOMPUTES",
    "RECOMPUTE_CELLS",
    "SCHEDULES",
)
_CACHED = (grammar.said, grammar.chosen, grammar.named, grammar.number, grammar.absent)
_WORDS = ("notes", "source", "zero_stage_or_fsdp", "flash_attention", "recompute", "precision", "schedule", "model")

Row = Mapping[str, str]
Phrase = tuple[str, str, str]
"""A table, the meaning in it (empty where the table is one choice), and the phrase."""


def phrases() -> Iterator[Phrase]:
    """All phrases of all tables."""
    for table in ("FLAGS", "NUMBERS"):
        for meaning, said in getattr(meanings, table).items():
            yield from ((table, meaning, phrase) for phrase in said)
    for table in _CHOICES:
        yield from ((table, "", phrase) for phrase, _ in getattr(meanings, table))


def distinct(rows: Sequence[Row], by_number: bool) -> list[Row]:
    """The rows of each source that differ in words or in the release cited, or with `by_number` also in the numbers."""
    kinds: dict[tuple, Row] = {}
    for row in rows:
        words = " | ".join(row.get(name) or "" for name in _WORDS)
        words = words if by_number else re.sub(r"\d{2,}(\.\d+)?|\d\.\d+", "#", words)
        divided = tuple(row.get(name) not in ("", "1", None) for name in ("tp", "pp", "cp"))
        cited = re.search(r"\bv?2\d\.\d\d", row.get("source_ref") or "")
        kinds.setdefault((row["source"], words, divided, cited and cited[0]), row)
    return list(kinds.values())


def sources_without(monkeypatch: Any, phrase: Phrase, rows: Sequence[Row], read: Mapping[int, Any]) -> set[str]:
    """The sources of which a row is read differently where the phrase is taken away; two at most are looked for."""
    by_source: dict[str, list[Row]] = {}
    for row in rows:
        if _says(row, phrase[2]):
            by_source.setdefault(row["source"], []).append(row)
    changed: set[str] = set()
    with monkeypatch.context() as patch:
        if by_source:
            _take_away(patch, phrase)
        for source, saying in by_source.items():
            if len(changed) < 2 and any(reading(row) != read[id(row)] for row in saying):
                changed.add(source)
    _forget()
    return changed


def reading(row: Row) -> Any:
    """What a prediction depends on."""
    found = case(row)
    if isinstance(found, Unreadable):
        return found.reason
    return _of_case(found)


def _of_case(found: Case) -> Any:
    cluster = found.cluster
    names = ("device_memory", "allocated_memory", "memory_of_all", "memory_of_last", "fast_dispatcher")
    logged = tuple(found.facts.get(name) for name in names)
    own = (found.stack, found.plan, found.open, *logged)
    return own, found.workload, dataclasses.replace(cluster, prices=None), found.facts.get("host_optimizer")


def _says(row: Row, phrase: str) -> bool:
    text = _text(tuple(row.get(name) or "" for name in (*_WORDS, "source_ref")))
    if not all(any(stem in text for stem in stems) for stems in _stems(phrase)):
        return False
    return grammar.said(text, (phrase,)) is not None or bool(grammar.named(text, ((phrase, True),)))


@functools.cache
def _text(cells: tuple[str, ...]) -> str:
    return " | ".join(grammar.clauses(" | ".join(cells)))


@functools.cache
def _stems(phrase: str) -> list[list[str]]:
    """Of each part of the phrase, texts of which one must be there: the alternatives of its longest word."""
    parts = [[word for word in part.rstrip("!").split() if not word.endswith("?")] for part in phrase.split("&")]
    longest = [max(words, key=len) for words in parts]
    return [[each.partition("_")[0].rstrip("*~") for each in word.split("|")] for word in longest if word != "#"]


def _take_away(patch: Any, phrase: Phrase) -> None:
    table, meaning, words = phrase
    held = getattr(meanings, table)
    if meaning:
        left = dict(held) | {meaning: tuple(each for each in held[meaning] if each != words)}
        patch.setattr(meanings, table, MappingProxyType(left))
    else:
        patch.setattr(meanings, table, tuple((each, value) for each, value in held if each != words))
    _forget()


def _forget() -> None:
    for function in _CACHED:
        function.cache_clear()
    facts_of.__globals__["_in_words"].cache_clear()
    for name, function in vars(choices).items():
        if name.startswith("_") and hasattr(function, "cache_clear"):
            function.cache_clear()
