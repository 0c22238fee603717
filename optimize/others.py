"""The processes of one search: all are connected to the first, which passes on what each of them tells.

By sockets of the standard library: the death of the first process of `jax.distributed` ends all the others by SIGABRT,
whatever is set (`jax_enable_recoverability`, a callback of its client: JAX 0.10.2, 2026-11-19), and so does that of any
other one where it has the answer already. Here whoever has the answer needs nobody any more.
"""

import dataclasses
import errno
import ipaddress
import json
import math
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from optimize.status import CommandError, OthersLostError, Status

WAIT_S = 60.0
"""Seconds to wait for the other processes, once this one is done."""
AGAIN_S = 0.1  # after which a process that nobody answers yet asks again
HELLO_S, HELLO_BYTES = 5.0, 256  # that who has come may take to say which it is: others wait behind it
_KEPT = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 6}
"""Seconds after which a silent connection is asked whether it is there, and how often: firewalls forget those that say
nothing for minutes, and a machine without power never says that it has ended."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharding:
    """Which part of a search this process does, and where it notes what is done."""

    processes: int = 1
    process: int = 0
    coordinator: str | None = None  # host:port of process 0
    checkpoint: Path | None = None  # a directory
    wait_s: float = WAIT_S


class _Line(NamedTuple):
    """A connection to another process, which sends lines of JSON."""

    process: int
    opened: socket.socket
    rest: bytearray  # of what has come: a line may come with the next one

    def send(self, content: Any, until: float) -> None:
        self.opened.settimeout(_left_s(until))
        self.opened.sendall(json.dumps(content).encode() + b"\n")

    def receive(self, until: float, most: float = math.inf) -> Any:
        """The next line, of so many bytes at most. Raises `OSError` where it has ended or takes too long."""
        while (end := self.rest.find(b"\n")) < 0 and len(self.rest) <= most:
            self.opened.settimeout(_left_s(until))
            if not (more := self.opened.recv(1 << 16)):
                raise ConnectionError
            self.rest.extend(more)
        if not 0 <= end <= most:
            raise ValueError
        content = bytes(self.rest[:end])
        del self.rest[: end + 1]
        return json.loads(content)

    def ended(self) -> bool:
        """Whether nobody is there any more."""
        self.opened.settimeout(0)
        try:
            return not self.opened.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True


def _line(opened: socket.socket) -> _Line:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEPT.items():
        if hasattr(socket, name):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return _Line(0, opened, bytearray())


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
    try:
        address[0].encode("idna")
    except UnicodeError:
        wrong = f"`coordinator` is '{sharding.coordinator}'; expected host:port"
        raise CommandError(Status.bad_input, f"command line: {wrong}") from None
    make = _first if sharding.process == 0 else _other
    return Others(sharding, sorted(make(sharding, address, until)))


def _first(sharding: Sharding, address: tuple[str, int], until: float) -> Iterator[_Line]:
    """Wait until each of the others has come and said which it is."""
    missing = set(range(1, sharding.processes))
    try:
        server = _listening(address)
    except OSError as error:
        told = f"`coordinator` is '{sharding.coordinator}', where process 0 cannot listen ({error.strerror or error})"
        raise CommandError(Status.bad_input, f"command line: {told}") from None
    with server:
        while missing:
            server.settimeout(_left_s(until))
            try:
                line = _line(server.accept()[0])
            except TimeoutError:
                _lost(sharding, None, "at the start")
            except OSError:
                continue  # it has ended already
            if (told := _hello(line, until)) is None:
                line.opened.close()
                continue
            process, processes = told
            if processes != sharding.processes or process not in missing:
                expected = f"{sharding.processes} with the numbers 0 to {sharding.processes - 1}, each once"
                wrong = f"process {process} of {processes} has come; expected {expected}"
                raise CommandError(Status.bad_input, f"command line: {wrong}")
            missing.remove(process)
            yield line._replace(process=process)


def _hello(line: _Line, until: float) -> tuple[int, int] | None:
    """Which process it is, of how many; None for somebody else, or where it has ended: it may come again."""
    try:
        told = line.receive(min(until, time.monotonic() + HELLO_S), HELLO_BYTES)
    except (OSError, ValueError):
        return None
    own = isinstance(told, list) and len(told) == 2 and all(type(number) is int for number in told)
    return (told[0], told[1]) if own else None


def _listening(address: tuple[str, int]) -> socket.socket:
    """At that address; at all of this machine where its name is one that only others know, or one of itself alone (many
    systems give their own name an address of the loopback)."""
    host, port = address
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        places = []
    for family, _, _, _, place in sorted(places, key=lambda each: each[0] != socket.AF_INET):
        if _is_loopback(str(place[0])) and not (host == "localhost" or _is_loopback(host)):
            continue
        try:
            return socket.create_server(place, family=family)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _other(sharding: Sharding, address: tuple[str, int], until: float) -> Iterator[_Line]:
    """Ask until the first process answers."""
    while True:
        try:
            line = _line(socket.create_connection(address, timeout=_left_s(until)))
            if line.opened.getsockname() == line.opened.getpeername():  # where nobody listens yet, by chance
                line.opened.close()
                raise ConnectionError
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
    what = waited if process is None else f"has lost process {process}, which has ended and did not answer"
    raise OthersLostError(f"process {sharding.process} of {sharding.processes} {what}{finished}")
