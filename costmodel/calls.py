"""A call with too few, unknown or too many arguments, in one line that says what is taken instead."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
_SHOWN = 50  # names in one message


def wrong_call(function: Callable[..., Any], name: str, arguments: tuple[Any, ...], given: Mapping[str, Any]) -> str:
    """What is wrong with a call, by the names of the arguments alone; empty where nothing is."""
    parameters = {n: p for n, p in inspect.signature(function).parameters.items() if n != "self"}
    taken = {n: p for n, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    kinds = {p.kind for p in parameters.values()}
    for word in given:
        if word not in taken and inspect.Parameter.VAR_KEYWORD not in kinds:
            return f"{name}: `{word}` is not an argument; {nearest(word, taken)}"
    free = [n for n, p in taken.items() if p.kind is not p.KEYWORD_ONLY]
    if len(arguments) > len(free) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        which = f"{', '.join(free)} alone, the others by name" if free else "every argument by name"
        return f"{name}: {len(arguments)} arguments are given without a name; expected {which}"
    twice = [n for n in free[: len(arguments)] if n in given]
    if twice:
        return f"{name}: `{twice[0]}` is given twice; expected it once"
    known = {*free[: len(arguments)], *given}
    needed = [n for n, p in taken.items() if p.default is p.empty]
    missing = [n for n in needed if n not in known]
    asked = ", ".join(f"{n}={_kind(taken[n])}" for n in needed)
    return f"{name}: `{missing[0]}` is missing; expected {name}({asked})" if missing else ""


def _kind(parameter: inspect.Parameter) -> str:
    """The type of an argument in words."""
    kind = parameter.annotation
    return kind if isinstance(kind, str) else getattr(kind, "__name__", "...") if isinstance(kind, type) else "..."


def strict(kind: type[T]) -> type[T]:
    """A dataclass whose wrong calls are told in one line, as `ValueError`."""
    make = kind.__init__

    def init(self: Any, *arguments: Any, **given: Any) -> None:
        try:
            make(self, *arguments, **given)
        except TypeError:
            if told := wrong_call(make, kind.__name__, arguments, given):
                raise ValueError(told) from None
            raise

    init.__wrapped__ = make  # pyright: ignore[reportFunctionMemberAccess]
    kind.__init__ = init
    return kind


def alike(word: str, known: Collection[str], cutoff: float = 0.6) -> list[str]:
    """Up to three names that a mistyped one may mean: those that begin with it, then the most similar ones."""
    import difflib

    begun = sorted(name for name in known if len(word) > 2 and name.startswith(word.lower()))
    return list(dict.fromkeys((*begun, *difflib.get_close_matches(word, known, n=3, cutoff=cutoff))))[:3]


def nearest(word: str, known: Collection[str]) -> str:
    """The names most like a mistyped one, in words; all of them where none is, or some where they are many."""
    if close := alike(word, known):
        return f"did you mean {' or '.join(close)}?"
    import difflib

    some = known if len(known) <= _SHOWN else difflib.get_close_matches(word, known, n=_SHOWN // 3, cutoff=0.0)
    others = f" or {len(known) - len(some)} others" if len(some) < len(known) else ""
    return f"expected one of {', '.join(some)}{others}"
