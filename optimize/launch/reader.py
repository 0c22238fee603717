"""Typed look-ups in the options of a launch file, which remember what was read and say in one line what is wrong."""

from collections.abc import Mapping
from typing import Any, TypeVar

from costmodel.specs import SpecError, show

T = TypeVar("T")
MOST_LISTED = 100_000


class Reader:
    """The options of one file. A look-up that is not there gives its default. `shown` are names for messages."""

    def __init__(self, settings: Mapping[str, Any], where: str, shown: Mapping[str, str] | None = None) -> None:
        self.settings, self.where, self.used, self.shown = settings, where, set[str](), shown or {}

    def has(self, name: str) -> bool:
        """Whether the file gives the option."""
        self.used.add(name)
        return self.settings.get(name) is not None

    def count(self, name: str, default: T = None) -> int | T:
        """An integer >= 1."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.wrong(name, "an integer >= 1")
        return value

    def one(self, name: str) -> int:
        """A degree: 1 where it is not given."""
        return self.count(name, 1)

    def few(self, name: str, default: int = 1, least: int = 1) -> int:
        """A number of things that are listed one by one: stages, layers."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_LISTED:
            raise self.wrong(name, f"an integer from {least} to {MOST_LISTED}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """Yes or no."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def word(self, name: str, meanings: Mapping[Any, T], default: T) -> T:
        """What a word stands for."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, list | dict) or value not in meanings:
            raise self.wrong(name, f"one of {', '.join(map(str, meanings))}")
        return meanings[value]

    def number(self, name: str) -> float | None:
        """A number > 0 of a size that a batch may have."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise self.wrong(name, "a number > 0 and < 1e9")
        return float(value)

    def raw(self, name: str) -> Any:
        """The value as it stands, or None."""
        self.used.add(name)
        return self.settings.get(name)

    def wrong(self, name: str, expected: str) -> SpecError:
        """The error of an option that cannot be right."""
        return SpecError(
            f"{self.where}: `{self.shown.get(name, name)}` is {show(self.settings.get(name))}; expected {expected}"
        )

    def left(self, neutral: frozenset[str]) -> tuple[str, ...]:
        """Names that were neither read nor are known to leave the cost of a step alone."""
        return tuple(name for name in self.settings if name not in self.used and name not in neutral)


def divided(reader: Reader, name: str, total: int, by: int, what: str) -> int:
    """`total / by`, which must be whole; `name` is the option that is to blame."""
    quotient, rest = divmod(total, by)
    if rest or not quotient:
        raise SpecError(
            f"{reader.where}: `{reader.shown.get(name, name)}` gives {total} for {what}; expected a multiple of {by}"
        )
    return quotient
