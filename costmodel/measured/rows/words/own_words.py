"""A text in clauses, without what it tells of other runs than its own."""

import functools
import re

from costmodel.measured.rows.words.spelling import spelt


@functools.lru_cache(maxsize=4096)
def clauses(text: str) -> tuple[str, ...]:
    """The text as phrases take it, cut where a negation ends, without what it tells of other runs; lists of what is
    absent are spelt out."""
    text = _OTHER_ROWS.sub(" ", spelt(text))
    text = _NEEDED.sub(" yet", without_asides(text))
    text = re.sub(r"\b(without|no|neither)\b([^;|.]{1,60}?),?\s(?:or|nor)\s", _each_denied, text)
    parts = re.split(
        r"[;|]|,(?!\d|\s(?:which|whose|who)\s)|\.(?=\s|$)|\s\+\s|(?<!\bno)(?<!\bwithout)\s(?=--[a-z])|\s(?:but|while|whereas)\s",
        text,
    )
    parts = [part for part in parts if not _OF_OTHERS.search(part)] if _OF_OTHERS.search(text) else parts
    parts = [_COMPARED.sub(" ", part) for part in parts] if _COMPARED.search(text) else parts
    parts = [part for part in parts if not _is_remark(part, parts)] if _REMARK.search(text) else parts
    return tuple(part.strip() for part in parts if part.strip())


_NEEDED = re.compile(r",?\sbut(?=\s(?:it\s)?(?:is\s|was\s)?(?:needed|necessary|required|kept|used)\b)")  # after all
_REMARK = re.compile(
    r"\b(?:is|was|were|are|proved|turned out|ran|runs)\s"
    r"(?:(?:about|much|slightly|even|to be|\d[\d.]*(?:\s?%|x)?)\s){0,3}"
    r"(?:slower|worse|(?:not|no) (?:any )?(?:faster|better))\b(?! yet\b)"
    r"|\bdiffers?\b|\b(?:costs?|adds?|takes?|saves?)\s(?:\w+\s){0,2}\W?\d+(?:\.\d+)?\s?%"
)
_ASIDE = re.compile(r"\(([^()]*)\)")
_OF_THE_REST = re.compile(
    r"\b(?:slower|worse|(?:of|in|from) the same (?:post|blog|page|paper|table|figure)"
    r"|(?:in|see) the (?:rows?|lines?|columns?|tables?) (?:above|below))\b"
)


def without_asides(text: str) -> str:
    """The text without brackets that tell of other runs."""
    return _ASIDE.sub(lambda found: "" if _tells_of_others(found[1]) else found[0], text) if "(" in text else text


def _tells_of_others(text: str) -> bool:
    return bool(_OF_OTHERS.search(text) or _OF_THE_REST.search(text))


_OWN = re.compile(r"\b(?:this|these|it|which|that|runs?|rows?|steps?|recipe|training)\b")


def _is_remark(part: str, parts: list[str]) -> bool:
    """Whether the clause weighs what the row has not: `interleaved was slower`, and what another clause speaks of too:
    `no recompute; full recompute costs 30 %`."""
    found = _REMARK.search(part)
    if found is None or _OWN.search(part[: found.start()]):
        return False
    if not found[0].startswith(("cost", "add", "take", "save")):
        return True
    stems = {word[:6] for word in re.findall(r"[a-z]{6,}", part[: found.start()])}
    others = " ".join(other for other in parts if other is not part)
    return any(stem in others for stem in stems)


_OTHER_ROWS = re.compile(
    r"(?:^|(?<=[;|])|(?<=\.\s))\s*(?!(?:this|these|all|both|same|our|each|every|the (?:rows|bars?|curves|columns))\b)"
    r"(?:[\w.+\-]+\s){1,3}(?:rows|bars?|curves|columns|(?:row|column)(?=\s(?:is|was|has|gives|shows|uses|reaches)\b))\b"
    r"(?:(?![;|]|\.\s|\s(?:but|while|whereas)\s).)*"
)
"""Sentences whose subject is other rows: `7B rows use TP 4, full AC`."""
_OF_OTHERS = re.compile(
    r"\b(?:elsewhere|(?:would|could)(?!\s+not\s+fit)"
    r"|(?:was|were) (?:used|run|trained|measured) (?:before|earlier|previously|formerly)"
    r"|siblings?|variants?(?! with\b)|also (?:ships?|trained|runs?|ran|tested|tried|available|provides?|supports?)"
    r"|(?:(?:an)?other|next|previous|following|preceding)"
    r" (?:tables?|rows?|sections?|pages?|runs?|columns?|figures?|bars?|lines?)"
    r"|(?:earlier|previous|older|original) (?:\w+ )?(?:posts?|papers?|versions?|revisions?|blogs?|reports?|releases?)"
    r" (?:\w+ )?"
    r"(?:us\w+|ran|runs|had|has|have|was|were|is|are|gave|gives|printed|prints|said|says|lists?|listed)"
    r"|(?:follows?|comes?|stands?|is|are) in (?:the )?(?:rows?|tables?|columns?|lines?) \d"
    r"|the rows? with(?:out)?\s.{1,60}\s(?:follows?|above|below|next|before)"
    r"|(?:rows?|columns?) of (?:the|this) table|in the same (?:figure|table|plot)"
    r"|(?:did|does|do|would) not (?:help|pay|improve)"
    r"|(?:brought|brings?|gained|gave|gives?|made|makes) (?:nothing|no (?:gain|speed-?up|difference|benefit))"
    r"|(?:gave|gives|had|has|shows?|reach\w*) (?:\w+ )?the same (?:speed|throughput|time|results?|numbers?))\b"
    r"|\b(?:baseline|reference|previous|earlier|older)\b.*(?:\b(?:slower|faster|worse|better|took|takes|oom\w*)\b|\d\s?%)"
)
"""Clauses that tell of other runs than the row's."""
_QUANTITY = r"\s(?:usual|expected|needed|[~\d.,]+\s?(?:%|[kmgt]i?b\b|t?flop|tok|s\b|ms\b|sec|min|hours?\b|days?\b))"
_COMPARED = re.compile(
    r"\b(?:compar(?:ed|ing|ison) (?:to|with)|relative to|versus|vs|against|rather than|in place of"
    rf"|(?<!other )than(?!{_QUANTITY})"
    r"|unlike|as opposed to|baselines? (?:for|of|to))\b.*?(?:$|(?=:\s|\b(?:thanks|by|due|because|owing|via)\b))"
    r"|\b(?:speed-?ups?|faster|gains?|\d\s?%)(?:\s(?:of\s)?[\d.]+\s?[x%]?)?\sover\b.*?(?:$|(?=\b(?:thanks|by|due)\b))"
)
"""What stands behind these words is another run's, up to what made the difference."""


def _each_denied(match: re.Match[str]) -> str:
    word = "no" if match[1] == "neither" else match[1]
    return f"{word}{match[2].replace(',', f'; {word}')}; {word} "
