"""The console command `equipoise` as a process: signals, streams that cannot be written, and its exit status.

Exit status: 0 an answer, 2 wrong input or an output that cannot be written, 3 no feasible answer, 4 time was up before
there was one, 130 interrupted (with the best so far where there is one), 143 ended by SIGTERM before there was one.
Nothing else of this project is loaded before signals are heard.
"""

import contextlib
import functools
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Never

INTERRUPTED, TERMINATED, UNWRITTEN = 130, 143, 2  # the first two as shells say it


def main(words: Sequence[str] | None = None) -> Never:
    """Run one command and exit with its status."""
    as_process(_command, sys.argv[1:] if words is None else list(words), "equipoise")


def _command(words: Sequence[str]) -> int:
    start = time.perf_counter()  # what is loaded takes its time, too
    from optimize.cli.run import run

    return run(words, start)


def as_process(run: Callable[[Sequence[str]], int], words: Sequence[str], program: str) -> Never:
    """Run a program of this project on its words and exit with its status, whatever signals and streams do."""
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 (closed by the shell: as if it led nowhere)
    _keep_compiled_programs()
    warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy, of plans far from any answer
    warnings.showwarning = functools.partial(_one_line, program)
    heard: list[int] = []
    try:
        _hear(heard)
        status = _written(run, words, program)
    except KeyboardInterrupt:
        status = _interrupted(heard, program)
    except Exception:  # of a library that was interrupted while it was loaded
        if not heard:
            raise
        status = _interrupted(heard, program)
    compiler = sys.modules.get("costmodel.evaluators.machine_code")
    if compiler is not None and status in (TERMINATED, INTERRUPTED):
        compiler.end_compiling()
    _end_now(status)


def _interrupted(heard: Sequence[int], program: str) -> int:
    with contextlib.suppress(OSError, KeyboardInterrupt, RuntimeError):  # the last: it is being written to already
        print(f"{program}: interrupted before there was an answer", file=sys.stderr)
    return TERMINATED if signal.SIGTERM in heard else INTERRUPTED


_AT_ONCE: list[str] = []  # what runs that a signal ends at once


@contextlib.contextmanager
def ended_at_once(program: str = "equipoise") -> Iterator[None]:
    """Inside, a signal that ends a command ends the process there and then: nothing is written yet that it could leave.

    For what runs in a library's machine code, which lets no handler in for seconds and does not survive an exception of
    ours where it calls Python: a thread hears the signal too.
    """
    if not _HEARING or threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_end_on_signals, args=(reading, program), daemon=True).start()
    _AT_ONCE.append(program)
    try:
        yield
    finally:
        _AT_ONCE.pop()
        signal.set_wakeup_fd(before)
        os.close(writing)  # the thread reads its end


def _end_on_signals(reading: int, program: str) -> None:
    """End the process at the first signal whose number arrives."""
    while number := os.read(reading, 1):
        if number[0] in (signal.SIGTERM, signal.SIGINT):
            os._exit(_interrupted([number[0]], program))
    os.close(reading)


_HEARING: list[bool] = []  # whether signals are heard here: not where a command runs in somebody's process


def _hear(heard: list[int]) -> None:
    """Keep every signal that ends a command, and interrupt it: files go, searches answer with the best so far."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        if _AT_ONCE:
            os._exit(_interrupted(heard, _AT_ONCE[-1]))
        if not _loads_machine_code(frame):
            raise KeyboardInterrupt
        _send_again(number)

    def again(lost: Any) -> None:
        """What came inside a callback of Python's, which can only print it, comes once more."""
        if not heard or lost.exc_type is not KeyboardInterrupt:
            usual(lost)
            return
        _send_again(heard[-1])

    _HEARING.append(True)
    usual, sys.unraisablehook = sys.unraisablehook, again
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` and a shell's background have it
            signal.signal(number, interrupt)


def _loads_machine_code(frame: FrameType | None) -> bool:
    """Whether a library's machine code is being loaded, which may end the process where an exception passes through."""
    while frame is not None and not frame.f_code.co_qualname.startswith("ExtensionFileLoader."):
        frame = frame.f_back
    return frame is not None


def _send_again(number: int) -> None:
    """The same signal a little later."""
    repeated = threading.Timer(0.02, os.kill, (os.getpid(), number))
    repeated.daemon = True
    repeated.start()


def _written(run: Callable[[Sequence[str]], int], words: Sequence[str], program: str) -> int:
    """Run, and see that all of the answer is written; the exit status."""
    if sys.stdout is None:
        return _unwritten(program, "it is closed")
    try:
        status = run(words)
        sys.stdout.flush()
    except BrokenPipeError:  # `equipoise ... | head`
        _lead_nowhere()
        return 0
    except OSError as error:
        _lead_nowhere()
        return _unwritten(program, error.strerror or str(error), error.filename)
    return status


def _lead_nowhere() -> None:
    """Nothing more can be written: what Python still holds of it must not fail again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unwritten(program: str, reason: str, name: Any = None) -> int:
    with contextlib.suppress(OSError):
        place = "standard output" if name is None else repr(str(name))[1:-1]
        print(f"{program}: {place}: cannot be written ({reason})", file=sys.stderr)
    return UNWRITTEN


_told: set[str] = set()


def _one_line(program: str, message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as one line, once; of compiled programs that cannot be read, what helps."""
    text = " ".join(str(message).split())[:300]
    if "compilation cache" in text:
        folder = os.environ["JAX_COMPILATION_CACHE_DIR"]
        text = f"{folder}: a compiled program there cannot be read or written; it is compiled anew (delete the folder)"
    if text not in _told:
        _told.add(text)
        print(f"{program}: {text}", file=sys.stderr)


def _end_now(status: int) -> Never:
    """Exit; where a thread still compiles what nobody waits for any more, without it (Python would wait)."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if all(thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.exit(status)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _keep_compiled_programs() -> None:
    """Have JAX keep what it compiles in the user's cache, small programs included (which it leaves out by default).

    Set before JAX is imported; what the user has set stays.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(home) / "equipoise" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
