"""How people say a thing: phrases with regular grammar, and whether a text says, denies or leaves open what they mean.

A phrase is words with blanks between them. A word stands for its plural too and is joined to its neighbours by blanks,
hyphens, underscores, slashes or nothing, in any case and in camel case. `wor*` has any ending, `word~` no plural,
`one|other` is either, `word?` may be absent, `#` is a number, `a b & c d` are both in one clause, in any order, few
words apart. A phrase that ends in `!` counts only where it is switched: `sp!` is said by `sp on` and `with sp`, and
not by `sp` alone.
"""

import functools
import re
from collections.abc import Iterator

from costmodel.measured.rows.words.own_words import clauses

Table = tuple[tuple[str, object], ...]
"""Phrases and what each means, the first that is said counting."""

_remembered = functools.lru_cache(maxsize=2**14)  # rows of one source say the same words
_JOIN = r"[\s\-/.:=+&]*"
_END = r"(?![a-uw-z]|v[a-z]|(?<=\d)\d)"  # no letter, but a version; after a number no digit
_NUMBER = r"(\d+(?:,\d{3})*(?:\.\d+)?)(?![.,]?\d)(?![km]\b|\s*(?:[km]|[mb]illion|thousand)?[\s\-]*tok)"
_REACH = 400  # letters: long clauses are read in a time in proportion to their length
_APART = 6  # words between the parts of a phrase with `&`


_Run = tuple[re.Pattern[str], tuple[str, ...]]
"""Words in a row: their expression, and texts of which one is in whatever it matches."""


@functools.cache
def _compiled(phrase: str) -> tuple[tuple[_Run, ...], bool]:
    switched = phrase.endswith("!")
    return tuple(_run(part.split()) for part in phrase.rstrip("!").split("&")), switched


def _run(words: list[str]) -> _Run:
    first = next(word for word in words if not word.endswith("?") and word != "#")
    stems = tuple(each.partition("_")[0].rstrip("*~") for each in first.split("|"))
    pieces = [_piece(word, i == 0, i == len(words) - 1) for i, word in enumerate(words)]
    return (re.compile(r"(?<![a-z*])" + "".join(pieces)), stems)


def _piece(word: str, first: bool, last: bool) -> str:
    if word == "#":
        return (
            (r"(?<![\w.])" if first else r"[\s:=()~\-]*(?:of|is|to|at)?[\s:=(~\-]*") + _NUMBER + ("" if last else _JOIN)
        )
    optional, word = word.endswith("?"), word.rstrip("?")
    ending = _END if last else _JOIN
    piece = "(?:" + "|".join(map(_alternative, sorted(word.split("|"), key=len, reverse=True))) + ")" + ending
    return f"(?:{piece})?" if optional else piece


def _alternative(text: str) -> str:
    plural = "(?:e?s)?" if text[-1].isalpha() else ""
    parts = (re.escape(part.rstrip("*~")) + (r"[a-z]*" if part.endswith("*") else "") for part in text.split("_"))
    return _JOIN.join(parts) + plural


@_remembered
def said(text: str, phrases: tuple[str, ...]) -> bool | None:
    """Whether the text says it is so anywhere, or else that it is not; None where it says neither."""
    denied, whole = None, _whole(text)
    for phrase in phrases:
        if not _may_stand(whole, phrase):
            continue
        for clause, start, end in _places(text, phrase):
            verdict = _verdict(clause, start, end, _compiled(phrase)[1])
            if verdict:
                return True
            denied = verdict if denied is None else denied
    return denied


@_remembered
def chosen(text: str, table: Table) -> object | None:
    """What the first phrase of the table that the text says and does not deny stands for."""
    return next((value for phrase, value in table if said(text, (phrase,))), None)


@_remembered
def named(text: str, table: Table) -> object | None:
    """The same for names, which are not denied by what is left open beside them."""

    def is_named(phrase: str) -> bool:
        return any(not _denied(*place) for place in _places(text, phrase))

    return next((value for phrase, value in table if is_named(phrase)), None)


@_remembered
def absent(text: str, phrases: tuple[str, ...]) -> bool:
    """Whether the text says that there is none of what the phrases name: `no TP`, not `no TP overlap`."""
    places = (place for phrase in phrases for place in _places(text, phrase))
    return any(_denied(clause, start, end) and _NOTHING_MORE.match(clause[end:]) for clause, start, end in places)


_NOTHING_MORE = re.compile(
    r"\s*[:(]|\W*(?:$|(?:and|or|at|is|was|used|needed|necessary|required|in use|off|disabled|none|0)\b)"
)
_OF_ANOTHER = re.compile(
    r"\b(?:virtual|expert|eval|evaluation|reduce|gather|nccl|zero)[\s\-]*$"
)  # `virtual pp degree` is no `pp degree`
_NO_PIPELINE = re.compile(r"\b(?:data|input|loader|prefetch\w*|preprocessing)[\s\-]*$")  # of data, before they are used
_NO_DEGREE = re.compile(r"\b(?:sharded|per|dcn|ici)[\s\-]*$")
"""`sharded data parallel 8`, `batch per DP 36`, copies beside what MaxText's `ici_fsdp_parallelism` divides."""
_IN_BRACKETS = re.compile(r"[a-z]\s?\(\d")
_OF_A_PART = re.compile(r"\b(?:pipeline|pipe|context|micro|mini|local|device|gpu|rank|core)[\s\-]*$")
_OF_ALL = re.compile(r"(?:batch|bs|bsz|model|window)\b|(?:bs|bsz)\d")  # `micro batch` is no `batch`


@_remembered
def number(text: str, phrases: tuple[str, ...]) -> float | None:
    """The number in the first of the phrases that the text says."""
    whole = _whole(text)
    for phrase in phrases:
        if not _may_stand(whole, phrase):
            continue
        ((expression, _), *_), _ = _compiled(phrase)
        for clause, start, end in _places(text, phrase):
            found = expression.search(clause, start)
            if found is None or found.start() > end:
                continue
            before = clause[max(0, found.start() - _REACH) : found.start()]
            no_degree = found[0].startswith(("data", "dp")) and _NO_DEGREE.search(before)
            no_degree = no_degree or (found[0].startswith("pipelin") and _NO_PIPELINE.search(before))
            of_another = (
                _OF_ANOTHER.search(before) or no_degree or (_OF_ALL.match(found[0]) and _OF_A_PART.search(before))
            )
            if _IN_BRACKETS.search(found[0]) and re.search(r"(?<![\w.])\d+[\s\-]$", before):
                continue  # 8 accumulation steps (1024 sequences)
            if not of_another and _verdict(clause, start, end, _compiled(phrase)[1]):
                return float(found[1].replace(",", ""))
    return None


def _places(text: str, phrase: str) -> Iterator[tuple[str, int, int]]:
    """Clauses in which the phrase stands, and where."""
    if _may_stand(_whole(text), phrase):
        yield from ((clause, *span) for clause in clauses(text) for span in _spans(clause, phrase))


def _may_stand(text: str, phrase: str) -> bool:
    """Whether the text has of each run of the phrase one of the texts that it cannot be without."""
    for _, stems in _compiled(phrase)[0]:
        for stem in stems:  # plain loops: a fifth of the time to read a table
            if stem in text:
                break
        else:
            return False
    return True


@functools.lru_cache(maxsize=4096)
def _whole(text: str) -> str:
    return "\n".join(clauses(text))


def _spans(clause: str, phrase: str) -> Iterator[tuple[int, int]]:
    """Where the phrase stands in the clause: its runs, not far apart."""
    if not _may_stand(clause, phrase):
        return
    runs, _ = _compiled(phrase)
    spans = [[found.span() for found in expression.finditer(clause)] for expression, _ in runs]
    if len(runs) == 1:
        yield from spans[0]
        return
    for start, end in spans[0]:
        for other, other_end in spans[1]:
            between = clause[end:other] if end <= other else clause[other_end:start]
            if (end <= other or other_end <= start) and len(re.findall(r"\w+", between)) <= _APART:
                yield min(start, other), max(end, other_end)


_NOT = (
    r"(?:\b(?:no|not|non|without|never|nor|minus|lacks?|lacking|disables?|disabling|excluding|except)\b|^\W*disabled\b)"
)
_NOT_BEFORE = re.compile(_NOT + r"[\s:\-]*(?:(?!with\b|and\b|using\b|use\b|only\b|on\b|enabled\b)\w+[\s_/\-]+){0,3}$")
_INSTEAD = re.compile(
    r"\b(?:before|unlike|versus|vs\.?|than|instead of|rather than|compared (?:to|with))\s(?:the\s)?$|\bpre-$"
)
_NOT_AFTER = re.compile(
    r"^(?:[\s-](?:model|parallel\w*|all[\s-]?reduce\w*|all[\s-]?gather\w*|recipe|kernels?|comm\w*|support|mode|loss|scaling|training|capture|runs?|variants?)){0,3}"
    r"(?:[\s:=(?.\-]|\b(?:is|are|was|were|be|been|being|to|set|turned|switched|kept|left|size|degree|mode|type|granularity|impl|scope|device|frac\w*"
    r"|ratio)\b)*"
    r"(?:off\b|(?<=-)free\b|disabled?\b|failed\b|false\b|none\b|null\b|n/a\b|no\b(?![\s\-]*\w)|unused\b|deactivated\b|inactive\b|0(?:\.0+)?(?![\d.])"
    r"|never\b(?=\W*$|\s?[)\]]|\s(?:used|enabled|applied|needed|active|set|switched|turned)\b)|diverge\w*|unstable\b|impossible\b|unavailable\b|unsupported\b"
    r"|(?:(?:is|are|was|were) )?(?:left out|omitted|skipped)\b"
    r"|not (?:used|enabled|applied|on|active|in use|set|passed|supported|possible|available on|needed)"
    r"|not (?:yet|there|here|in (?:this|these)|implemented)\b"
    r"|(?:left )?for (?:the )?future|planned\b)"
)
_NOT_IN_THE_END = re.compile(
    r"\b(?:and (?:is|was|are|were)(?: \w+)?|(?:both|all)(?: (?:is|was|are|were))?)"
    r" (?:not (?:used|enabled)|unused|off|disabled)\b"
)
_OPEN_BEFORE = re.compile(
    r"\b(?:whether|if|maybe|perhaps|possibly|unknown|available|may|can|no (?:mention|word|information|details?)"
    r" (?:of|on|about))\W+(?:\w+\W+){0,2}$"
)
_OPEN_AFTER = re.compile(
    r"^\s?\?(?!\W*(?:yes|no)\b)"
    r"|\b(?:not|never|nowhere|un)[\s\-]*(?:re)?(?:stated|printed|given|listed|known|specified|mentioned|transcribed|read"
    r"|reported|named|disclosed|published|described|shown|found|clear)|\b(?:unclear|available|optional|possible|varied)\b"
    r"|\bassumed from\b|\b(?:settings?|columns?|flags?) (?:from|per|as)\b"
    r"|\bfrom (?:conf|preset)"
)
_SWITCHED = re.compile(
    r"^[\s.:=(\-]*(?:(?:is|are|was|were|had to be|has to be|must be) )?(?:(?:switched|turned) )?"
    r"(?:on\b|true\b|enabled?\b|yes\b|used\b|active\b|1(?![\d.]))"
)
_AND_MORE, _SHORT = re.compile(r"^\s(?:and|&)\s.*"), 3  # `SP and AC`, not `checkpoints and interruptions`
_WITH_BEFORE = re.compile(r"(?:\b(?:with|using|plus|tp and|tp)|[+&])[\s+&/\-]*$")


_HOW_MANY = re.compile(
    r"\((?:the |its |their )?(?:number|degree|count|size|how many)\b[^()]*\)"
)  # which is open, not whether


def _around(clause: str, start: int, end: int) -> tuple[str, str, str]:
    """What stands before, in and behind the place, as far as words act."""
    return clause[max(0, start - _REACH) : start], clause[start:end], _HOW_MANY.sub("", clause[end : end + _REACH])


def _denied(clause: str, start: int, end: int) -> bool:
    before, within, after = _around(clause, start, end)
    found = _NOT_BEFORE.search(before) or _INSTEAD.search(before)
    found = found or _NOT_AFTER.match(after) or _NOT_IN_THE_END.search(after)
    return bool(found) or bool(re.search(r"[\s(](?:off|disabled|not|no|without)\s", within))


def _verdict(clause: str, start: int, end: int, switched: bool) -> bool | None:
    before, _, after = _around(clause, start, end)
    if _OPEN_BEFORE.search(before):
        return None
    if _denied(clause, start, end):
        return False
    if _OPEN_AFTER.search(after):
        return None
    own, more = before.rpartition(":")[2], after.partition("(")[0]
    more = _AND_MORE.sub("", more) if end - start <= _SHORT else more
    alone = not re.search(r"\w", own + more)  # an item of a list
    if switched and not (alone or _SWITCHED.match(after) or _WITH_BEFORE.search(before)):
        return None
    return True
