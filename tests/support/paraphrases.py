"""Many wordings of one thing, out of a small grammar: `{a|b}` is either, and every wording is spelt in several ways.

Nothing here knows the phrases of the reader: the words are those of other frameworks' documents and logs.
"""

import itertools
import re
from collections.abc import Iterator


def wordings(*templates: str) -> list[str]:
    """Every choice of every template, each in one of five spellings in turn."""
    plain = [text for template in templates for text in _choices(template)]
    return [_SPELLINGS[i % len(_SPELLINGS)](text) for i, text in enumerate(plain)]


def spelt(*templates: str) -> list[str]:
    """Every choice of every template in every spelling."""
    plain = [text for template in templates for text in _choices(template)]
    return list(dict.fromkeys(spell(text) for text in plain for spell in _SPELLINGS))


def sentences(*templates: str) -> list[str]:
    """Every choice of every template as it stands, and in small letters: sentences are not hyphened."""
    plain = [text for template in templates for text in _choices(template)]
    return list(dict.fromkeys(spell(text) for text in plain for spell in (str, str.lower)))


def denied(*subjects: str) -> list[str]:
    """Ways to say that it is not so, of every subject."""
    ways = ("no {}", "without {}", "{} off", "{}: disabled", "{} is not used", "{}=False", "w/o {}", "{} not enabled")
    return [_SPELLINGS[i % 2](way.format(each)) for i, (way, each) in enumerate(itertools.product(ways, subjects))]


def in_context(text: str) -> str:
    """The wording among clauses that say other things."""
    return f"step derived from tokens/s; {text}; arch from public config, tokens/s as printed"


def _choices(template: str) -> Iterator[str]:
    parts = re.split(r"\{([^}]*)\}", template)
    options = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    for chosen in itertools.product(*options):
        yield re.sub(r"\s+", " ", "".join(chosen)).strip()


_SPELLINGS = (
    lambda text: text,
    lambda text: text.upper(),
    lambda text: text.replace(" ", "-"),
    lambda text: text.replace(" ", "_"),
    lambda text: text.capitalize(),
)
