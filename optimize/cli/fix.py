"""`--fix tensor=8,schedule=one_f_one_b`: fields of a plan that are not searched."""

from typing import Any

from costmodel.specs import PLAN_CHECKS, SpecError, nearest, show
from optimize.cli.inputs import Given


def fixed_fields(given: Given) -> dict[str, Any]:
    """The fields of `--fix tensor=8,schedule=one_f_one_b`."""
    if "fix" not in given.values:
        return {}
    place, fields = given.place("fix"), {}
    for part in str(given.values["fix"]).split(","):
        name, equals, text = (word.strip() for word in part.partition("="))
        name = name.replace("-", "_")
        if not equals or name not in PLAN_CHECKS:
            wrong = f"{place}: `fix` has {show(part.strip())}; expected field=value"
            raise SpecError(f"{wrong}; {nearest(name, PLAN_CHECKS)}" if equals else wrong)
        if name in fields:
            raise SpecError(f"{place}: `fix` gives `{name}` twice; expected one value")
        fields[name] = _typed(place, name, text)
    return fields


_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}


def _typed(place: str, name: str, text: str) -> Any:
    """The value that a field takes: of the readings of the text, the first that its check accepts."""
    check = PLAN_CHECKS[name]
    for read in (int, float, lambda word: _WORDS[word], str, lambda word: [int(part) for part in word.split(":")]):
        try:
            value = read(text)
        except (ValueError, KeyError):
            continue
        if check(value):
            return check.keep(value)
    raise SpecError(f"{place}: `fix` sets `{name}` to {show(text)}; expected {check.expected}")
