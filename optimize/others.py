"""The processes of one search: all are connected to the first, which passes on what each of them tells.

By sockets of the standard library: the death of the first process of `jax.distributed` ends all the others by SIGABRT,
whatever is set (`jax_enable_recoverability`, a callback of its client: JAX 0.10.2, 2026-11-19), and so does that of any
other one where it has the answer already. Here whoever has the answer needs nobody any more.
"""

import dataclasses
import json
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from optimize.status import CommandError, OthersLostError, Status

WAIT_S = 60.0
"""Seconds to wait for the other processes, once this one is done."""
AGAIN_S = 0.1  # after which a process that nobody answers yet asks again


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharding:
    """Which part of a search this process does, and where it notes what is done."""

    processes: int = 1
    process: int = 0
    coordinator: str | None = None  # host:port of process 0
    checkpoint: Path | None = None  # a directory
    wait_s: float = WAIT_S


class _Line(NamedTuple):
    """A connection to another process, which sends one line of JSON at a time."""

    process: int
    opened: socket.socket

    def send(self, content: Any, until: float) -> None:
        self.opened.settimeout(_left_s(until))
        self.opened.sendall(json.dumps(content).encode() + b"\n")

    def receive(self, until: float) -> Any:
        """What it sends. Raises `OSError` where it has ended or takes too long."""
        parts = list[bytes]()
        while not parts or not parts[-1].endswith(b"\n"):
            self.opened.settimeout(_left_s(until))
            parts.append(self.opened.recv(1 << 16))
            if not parts[-1]:
                raise ConnectionError
        return json.loads(b"".join(parts))

    def ended(self) -> bool:
        """Whether nobody is there any more."""
        try:
            readable = select.select([self.opened], [], [], 0)[0]
            return bool(readable) and not self.opened.recv(1, socket.MSG_PEEK)
        except OSError:
            return True


class Others:
    """The other processes, as this one is connected to them: the first to all, and each of all others to the first."""

    def __init__(self, sharding: Sharding, lines: list[_Line]) -> None:
        self.sharding, self.lines = sharding, lines

    def told(self, content: Any) -> list[Any]:
        """What all processes tell here, each its own, in their order; all of them call it equally often."""
        until = time.monotonic() + self.sharding.wait_s
        if self.sharding.process > 0:
            self._with(self.lines[0], lambda line: line.send(content, until))
            return self._with(self.lines[0], lambda line: line.receive(until))
        all_told = [content, *(self._with(line, lambda line: line.receive(until)) for line in self.lines)]
        for line in self.lines:
            self._with(line, lambda line: line.send(all_told, until))
        return all_told

    def check(self) -> None:
        """Raise `OthersLostError` where one of them has ended."""
        for line in self.lines:
            if line.ended():
                _lost(self.sharding, line.process)

    def _with(self, line: _Line, act: Callable[[_Line], Any]) -> Any:
        try:
            return act(line)
        except TimeoutError:
            _lost(self.sharding, None)
        except (OSError, ValueError):
            _lost(self.sharding, line.process)


def connect(sharding: Sharding) -> Others:
    """Meet the other processes. Raises `OthersLostError` where they do not come in time."""
    assert sharding.coordinator is not None
    host, _, port = sharding.coordinator.rpartition(":")
    until, address = time.monotonic() + sharding.wait_s, (host.strip("[]"), int(port))
    make = _first if sharding.process == 0 else _other
    return Others(sharding, sorted(make(sharding, address, until)))


def _first(sharding: Sharding, address: tuple[str, int], until: float) -> Iterator[_Line]:
    """Wait until each of the others has come and said which it is."""
    missing = set(range(1, sharding.processes))
    try:
        server = _listening(address)
    except OSError as error:
        told = f"`coordinator` is '{sharding.coordinator}', where process 1 cannot listen ({error.strerror or error})"
        raise CommandError(Status.bad_input, f"command line: {told}") from None
    with server:
        while missing:
            try:
                server.settimeout(_left_s(until))
                line = _Line(0, server.accept()[0])
                process, processes = line.receive(until)
            except TimeoutError:
                _lost(sharding, None, "at the start")
            except (OSError, ValueError, TypeError):
                continue  # of somebody else, or it has ended: it may come again
            if processes != sharding.processes or process not in missing:
                expected = f"{sharding.processes} with the numbers 1 to {sharding.processes}, each once"
                told = f"process {process + 1} of {processes} has come; expected {expected}"
                raise CommandError(Status.bad_input, f"command line: {told}")
            missing.remove(process)
            yield line._replace(process=process)


def _listening(address: tuple[str, int]) -> socket.socket:
    """At that address; at all of this machine where its name is one that only others know."""
    try:
        return socket.create_server(address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    except OSError:
        return socket.create_server(("", address[1]))


def _other(sharding: Sharding, address: tuple[str, int], until: float) -> Iterator[_Line]:
    """Ask until the first process answers."""
    while True:
        try:
            line = _Line(0, socket.create_connection(address, timeout=_left_s(until)))
            line.send((sharding.process, sharding.processes), until)
        except OSError:
            if time.monotonic() + AGAIN_S > until:
                _lost(sharding, None, "at the start")
            time.sleep(AGAIN_S)
        else:
            yield line
            return


def _left_s(until: float) -> float:
    """Time that is left, as sockets take it: nothing would mean that they do not wait."""
    return max(1e-3, until - time.monotonic())


def _lost(sharding: Sharding, process: int | None, when: str = "at the end") -> NoReturn:
    """Say which process has ended, or, where that is not known, that one does not answer."""
    finished = "" if sharding.checkpoint is None else f"; what is finished is kept in {sharding.checkpoint}"
    waited = f"waited {sharding.wait_s:.0f} s for the others {when}, and at least one did not answer"
    what = waited if process is None else f"has lost process {process + 1}, which has ended and did not answer"
    raise OthersLostError(f"process {sharding.process + 1} of {sharding.processes} {what}{finished}")
