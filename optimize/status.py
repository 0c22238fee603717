"""How a command ended. The members' values are the messages, their names the `status` in JSON."""

import enum
import functools
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Status(enum.Enum):
    """The outcome of a command, and with it the exit status of the process."""

    ok = "answered"
    bad_input = "the input is wrong"
    out_of_time = "time was up before any answer was found"
    infeasible = "no answer meets the constraints"
    incomplete = "stopped before everything was evaluated: the best so far, with a lower bound"

    @property
    def exit_status(self) -> int:
        """The number that the process ends with."""
        return {Status.ok: 0, Status.bad_input: 2, Status.infeasible: 3, Status.out_of_time: 4}.get(self, 130)


class CommandError(Exception):
    """Ends a command with a status and a message of one line; `violations` holds all broken rules of a plan.

    A message that takes long to find is a function, which is asked when somebody reads it.
    """

    def __init__(self, status: Status, message: str | Callable[[], str], violations: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.status, self.violations, self._given = status, violations, message

    @functools.cached_property
    def message(self) -> str:
        """Why there is no answer, in one line."""
        text = self._given if isinstance(self._given, str) else self._given()
        return " ".join(text.split())

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type, tuple[Status, str, tuple[str, ...]]]:
        """What another process makes the error of: its words, for what they are found with may stay behind."""
        return type(self), (self.status, self.message, self.violations)


def unless_refused(make: Callable[[], T]) -> T | None:
    """What is made; None where that ends in a `CommandError`: what is told beside an answer does not take it away."""
    try:
        return make()
    except CommandError:
        return None


class OthersLostError(KeyboardInterrupt):
    """Another process of a search has ended or does not answer: an interruption like that by the user.

    What is known so far is the answer; where nothing is, the message of one line.
    """

    @property
    def message(self) -> str:
        return str(self)
