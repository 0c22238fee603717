"""Processes that meet by sockets: strangers at the door, messages that come together, names of machines."""

import socket
import threading
import time
from collections.abc import Callable

import pytest

from optimize import others
from optimize.others import Others, Sharding, connect
from optimize.status import CommandError


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _meet(host: str, before: Callable[[int], socket.socket] | None = None) -> dict[int, list[str]]:
    """What two processes hear; somebody else comes before the second."""
    port, heard, kept = _port(), dict[int, list[str]](), list[socket.socket]()

    def one(process: int) -> None:
        own = Sharding(processes=2, process=process, coordinator=f"{host}:{port}", wait_s=20)
        met = connect(own)
        heard[process] = met.told("x" * 300_000 if process else "first")
        for line in met.lines:
            line.opened.close()

    first, second = (threading.Thread(target=one, args=(process,), daemon=True) for process in (0, 1))
    first.start()
    while before is not None and not kept:
        try:
            kept.append(before(port))
        except ConnectionRefusedError:
            time.sleep(0.01)
    second.start()
    for thread in (first, second):
        thread.join(20)
    for stranger in kept:
        stranger.close()
    return heard


def _sending(content: bytes) -> Callable[[int], socket.socket]:
    def come(port: int) -> socket.socket:
        stranger = socket.create_connection(("127.0.0.1", port))
        stranger.sendall(content)
        return stranger

    return come


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_all_are_told_what_each_tells(host):
    """At once after they meet: who they are and what they tell come together."""
    assert _meet(host) == dict.fromkeys((0, 1), ["first", "x" * 300_000])


@pytest.mark.parametrize(
    "content",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff\n", b"[[], 2]\n", b'"ab"\n', b"[true, 2]\n", b"[" * 60_000 + b"\n"],
    ids=["silent", "browser", "bytes", "lists", "text", "flags", "deep"],
)
def test_a_stranger_keeps_nobody_away(monkeypatch, content):
    monkeypatch.setattr(others, "HELLO_S", 0.3)
    assert _meet("127.0.0.1", _sending(content)) == dict.fromkeys((0, 1), ["first", "x" * 300_000])


@pytest.mark.parametrize(
    ("host", "places", "everywhere"),
    [
        ("node-1", ["127.0.1.1"], True),  # as Debian's /etc/hosts tells a machine of itself
        ("node-1", ["::1", "127.0.1.1"], True),
        ("node-1", ["203.0.113.7"], True),  # of a gateway before it
        ("localhost", ["127.0.0.1"], False),
        ("127.0.0.1", ["127.0.0.1"], False),
    ],
)
def test_a_name_that_others_know_is_heard_by_them(monkeypatch, host, places, everywhere):
    families = [socket.AF_INET6 if ":" in place else socket.AF_INET for place in places]
    told = [(family, 0, 0, "", (place, 0)) for family, place in zip(families, places, strict=True)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: told)
    with others._listening((host, 0)) as server:
        assert (server.getsockname()[0] in ("::", "0.0.0.0")) == everywhere


def test_a_place_that_is_taken_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        own = Sharding(processes=2, coordinator=f"127.0.0.1:{taken.getsockname()[1]}", wait_s=1)
        with pytest.raises(CommandError, match="cannot listen"):
            connect(own)


def test_what_is_no_name_is_refused_at_once():
    own = Sharding(processes=2, process=1, coordinator=f"{'a' * 70}.org:1234")
    with pytest.raises(CommandError, match="expected host:port"):
        connect(own)


def test_whether_another_has_ended_is_seen_at_any_descriptor():
    own, other = socket.socketpair()
    line = others._Line(1, own, bytearray())
    connected = Others(Sharding(processes=2), [line])
    connected.check()
    other.close()
    with pytest.raises(KeyboardInterrupt, match="has lost process 1"):
        connected.check()
    own.close()
