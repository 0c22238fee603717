"""Rows of something else than pretraining, by their words."""

import functools
import re

from costmodel.measured.rows.words import kinds
from costmodel.measured.rows.words.grammar import Table, said
from costmodel.measured.rows.words.own_words import without_asides


@functools.lru_cache(maxsize=4096)
def other_than_pretraining(source: str, model: str, notes: str) -> str | None:
    """Why a row is refused whose words name what is trained in other ways, or not at all; what they mention in passing,
    before or after the training, is no reason."""
    told = re.split(r"[;|]|\.\s", without_asides(_QUICK.sub("", notes)))
    own = "; ".join(_FROM_THEN_ON.split(sentence)[0] for sentence in told if not _IN_PASSING.search(sentence))
    words = f"{source} | {model} | {own}"
    untrained = None if _TRAINS.search(words) else _reason(words, kinds.NO_TRAINING)
    return _reason(words, kinds.OTHER_TRAINING) or untrained or _reason(model, kinds.OTHER_MODELS)


_QUICK = re.compile(
    r"\bprompt tuning of (?!(?:the |an? )?(?:[\w.\-]+ )?"
    r"(?:models?|llms?|plms?|soft|prompts?|weights|llama|bert|gpt|t5)\b)",
    re.IGNORECASE,
)
"""Of a network or a program, done soon."""
_IN_PASSING = re.compile(
    r"^\s*(?!this\b|these\b)(?:[\w.+\-]+\s){1,3}(?:rows|bars?|curves|columns)\b"
    r"|\b(?:in (?:the )?others?\b|afterwards?|later|subsequent\w*|separate\w*|downstream|future)\b",
    re.IGNORECASE,
)
_FROM_THEN_ON = re.compile(
    r"\b(?:after(?!\s+(?:the\s+|a\s+)?(?:first\s+|few\s+)?(?:\W?\d|warm|steps?\b))|evaluat\w*|next)\b", re.IGNORECASE
)
"""Words behind which a sentence tells of something else than the training: what stands before them counts."""
_TRAINS = re.compile(
    r"(?<!\bno )(?<!\bnot )(?<!\bwithout )\b(?:(?:pre-?)?train(?:s|ing)\b|(?:pre-?|fine-?)?(?:trained|tuned)\b"
    r"(?!\s+(?:\S+\s+)?(?:models?|weights|checkpoints?|networks?|llms?)\b)|fine-?tun(?:e|es|ing)\b"
    r"|backward|optimi[sz]er(?!\s(?:is )?not)|gradient|fsdp|zero-?\d|global batch)",
    re.IGNORECASE,
)
"""Words of training, beside which what is said of inference is said in passing; what is trained already is none."""


def _reason(text: str, table: Table) -> str | None:
    for phrase, reason in table:
        if said(text, (phrase,)):
            first, _, others = phrase.partition(" ")
            found = next(word for word in first.split("|") if said(text, (f"{word} {others}".strip(),)))
            return f"`{found}` in its words: {reason}"
    return None
