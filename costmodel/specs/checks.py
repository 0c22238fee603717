"""Checks of single values, and of tables of them: for all that is read from files, and for the rules of plans."""

import dataclasses
import math
import numbers
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from costmodel.calls import alike as alike
from costmodel.calls import nearest as nearest
from costmodel.specs.files import SpecError, plain, show
from costmodel.specs.units import file_keys

T = TypeVar("T")

LARGEST_COUNT = 10**18
LARGEST_NUMBER = 1e24


REQUIRED = object()
"""Instead of a default: the field must be there."""


@dataclasses.dataclass(frozen=True)
class Check:
    """What a field accepts, in code and in words (or a function of none that says them), and how its value is kept."""

    words: str | Callable[[], str]
    accepts: Callable[[Any], bool]
    keep: Callable[[Any], Any] = lambda value: value
    optional: bool = False
    default: Any = REQUIRED  # of a file that leaves the field out

    @property
    def expected(self) -> str:
        """The words."""
        return self.words if isinstance(self.words, str) else self.words()

    def __call__(self, value: Any) -> bool:
        return (self.optional and value is None) or self.accepts(value)


def is_count(value: Any) -> bool:
    """A whole number from 1 on; a boolean is none, nor is 8.0."""
    whole = type(value) is int or isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return whole and 1 <= int(value) <= LARGEST_COUNT


def is_number(value: Any) -> bool:
    """A finite number of a size that something physical may have."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return real and -LARGEST_NUMBER <= value <= LARGEST_NUMBER  # pyright: ignore[reportOperatorIssue]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and value.strip() != ""


def one_of(allowed: Collection[str]) -> Check:
    """One of some names; those that a program adds to a table later count too."""
    return Check(lambda: f"one of {', '.join(allowed)}", lambda value: isinstance(value, str) and value in allowed)


def some_of(allowed: Iterable[str]) -> Check:
    """A list of some names, at least one."""
    names = tuple(allowed)
    return Check(
        f"a list of one or more of {', '.join(names)}",
        lambda value: isinstance(value, list) and value != [] and all(isinstance(v, str) and v in names for v in value),
        keep=tuple,
    )


def _is_leaf(value: Any) -> bool:
    """A number above 0 of a physical size; or an array's without axes, which may be traced."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return 0 < value <= LARGEST_NUMBER  # pyright: ignore[reportOperatorIssue]
    return getattr(value, "shape", None) == ()


def an(kind: type, example: str) -> Check:
    """An object of a class; with what makes one."""
    article = "an" if kind.__name__[0] in "AEIO" else "a"
    return Check(f"{article} {kind.__name__}, such as {example}", lambda value: isinstance(value, kind))


COUNT = Check("an integer from 1 to 10**18", is_count, keep=int)
COUNT_FROM_0 = Check(
    "an integer >= 0",
    lambda value: isinstance(value, numbers.Integral) and type(value) is not bool and is_count(int(value) + 1),
)
LEAF = Check("a number > 0", _is_leaf)
"""Check of a number of an object that a program has made."""
LEAVES = Check(LEAF.words, lambda value: LEAF(value) or bool(getattr(value, "shape", ())))
"""The same, or an array of them."""
POSITIVE = Check("a number > 0", lambda value: is_number(value) and value > 0, keep=float)
NON_NEGATIVE = Check("a number >= 0", lambda value: is_number(value) and value >= 0, keep=float)
AT_LEAST_ONE = Check("a number >= 1", lambda value: is_number(value) and value >= 1, keep=float)
SHARE = Check("a number from 0 to 1", lambda value: is_number(value) and 0 <= value <= 1, keep=float)
POSITIVE_SHARE = Check("a number > 0 and <= 1", lambda value: is_number(value) and 0 < value <= 1, keep=float)
PROBABILITY = Check("a number > 0 and < 1", lambda value: is_number(value) and 0 < value < 1, keep=float)
MAPPING = Check(
    "a mapping of names to values",
    lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value),
)
FLAG = Check("true or false", lambda value: isinstance(value, bool))
TEXT = Check("text on one line", _is_text)


def fail(where: str, field: str, value: Any, expected: str) -> NoReturn:
    """Raise the one-line message of a wrong value."""
    raise SpecError(f"{where}: `{field}` is {show(value)}; expected {expected}")


def check_fields(where: str, given: Any, checks: Mapping[str, Check]) -> None:
    """Raise `SpecError` for the first attribute that its check does not accept."""
    for name, check in checks.items():
        if not check(value := getattr(given, name)):
            fail(where, name, value, check.expected)


def called(where: str, function: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    """What the user's function returns; what it raises, in one line."""
    try:
        return function(*arguments, **keywords)
    except Exception as error:
        told = " ".join(str(error).split()) or "no message"
        raise SpecError(f"{where}: {type(error).__name__}: {told}") from error


def either(names: Iterable[str]) -> str:
    """Names in words: `a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def convert(table: Mapping[str, Any], checks: Mapping[str, Check], where: str) -> dict[str, Any]:
    """The table's values by SI field. Notes on where a number is from (`source`, `hbm_date`, ...) are passed over."""
    keys = {key: (field, factor) for field in checks for key, factor in file_keys(field).items()}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in keys:
            if _is_provenance(key):
                continue
            raise SpecError(f"{where}: `{plain(key)}` is not a field here; {nearest(key, keys)}")
        field, factor = keys[key]
        if field in values:
            raise SpecError(f"{where}: `{key}` is {show(value)}, but `{field}` is given already; expected one of them")
        values[field] = _value(where, key, value, checks[field], factor)
    return values


def require(values: Mapping[str, Any], fields: Iterable[str], checks: Mapping[str, Check], where: str) -> None:
    """Raise unless all fields are there."""
    for field in fields:
        if field not in values:
            others = list(file_keys(field))[1:]
            also = f" (or in other units: {', '.join(others)})" if others else ""
            raise SpecError(f"{where}: `{field}` is missing; expected {checks[field].expected}{also}")


def _is_provenance(key: str) -> bool:
    return key.rpartition("_")[2] in ("source", "date", "note")


def _value(where: str, key: str, value: Any, check: Check, factor: float) -> Any:
    if not check(value):
        fail(where, key, value, check.expected)
    if value is None:
        return None
    kept = check.keep(value)
    if factor == 1.0:
        return kept
    scaled = kept * factor
    if not math.isfinite(scaled) or not check(scaled):
        fail(where, key, value, check.expected)
    return scaled
