"""`run all`: one experiment after the other, and one page of all that finished, however many those are.

What an interrupted run has finished is not run again by the next one, as long as no file of the packages has changed:
results/unfinished.json says what that is. A whole run leaves no such file, so that the next one starts anew.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from costmodel.specs import SpecError
from experiments import pages, runner
from experiments.sources import digest_of_sources

QUICK: Mapping[str, Sequence[str]] = {
    "speed": ("--quick",),
    "search_quality": ("--quick", "--seconds", "10", "--clock", "cpu"),
    "calibrate_defaults": ("--no-leave-out",),
    "real_steps": ("--quick",),
}
"""Settings of `run all`: what would take longest, shortened."""

INTERRUPTED = 130
_STATE = "unfinished.json"

Run = Callable[[str, Sequence[str]], int]
Finished = dict[str, tuple[int, str]]
"""By experiment the exit status, and why there is no result where there is none."""


def run_all(run: Run) -> int:
    """Run them, the index last. The exit status: the worst of all, 130 where it was interrupted."""
    runner.RESULTS.mkdir(exist_ok=True)
    digest, names = digest_of_sources(), runner.names()
    finished, interrupted = _finished(digest), False
    if finished:
        _say(f"going on: {len(finished)} of {len(names)} had finished ({', '.join(finished)})")
    try:
        for number, name in enumerate(names, 1):
            if name not in finished:
                _say(f"{number} of {len(names)}, {name}: {runner.question(runner.find(name))}")
                finished[name] = _one(run, name)
                _keep(digest, finished)
    except KeyboardInterrupt:
        interrupted = True
        _say("interrupted; the same command goes on from here")
    print(_index(finished, [name for name in names if name not in finished]))
    if interrupted:
        return INTERRUPTED
    (runner.RESULTS / _STATE).unlink()
    return max(status for status, _ in finished.values())


def _one(run: Run, name: str) -> tuple[int, str]:
    """Run one; what fails does not stop the others."""
    started = time.monotonic()
    try:
        status, why = run(name, QUICK.get(name, ())), ""
        _say(f"{name}: {time.monotonic() - started:.0f} s")
    except SpecError as error:
        status, why = 0, str(error)
        _say(f"{name} was left out: {why}")
    except Exception as error:
        status, why = 1, f"broke down: {error!r}"
        traceback.print_exc()
        _say(f"{name} {why}")
    return status, why


def _finished(digest: str) -> Finished:
    """What an interrupted run of the same sources has finished."""
    path = runner.RESULTS / _STATE
    kept = json.loads(path.read_text()) if path.is_file() else {}
    return kept["finished"] if kept.get("source") == digest else {}


def _keep(digest: str, finished: Finished) -> None:
    part = runner.RESULTS / f"{_STATE}.part"
    part.write_text(json.dumps({"source": digest, "finished": finished}) + "\n")
    part.replace(runner.RESULTS / _STATE)


def _index(finished: Finished, missing: Sequence[str]) -> Path:
    """The page of everything that has a result."""
    left_out = {name: why for name, (_, why) in finished.items() if why} | dict.fromkeys(missing, "not run yet")
    folders = {name: runner.RESULTS / name for name in finished if name not in left_out}
    ran = [(runner.find(name), runner.result(folder), folder) for name, folder in folders.items()]
    index = runner.RESULTS / "index.html"
    index.write_bytes(pages.of_all(ran, left_out))
    return index


def _say(words: str) -> None:
    print(f"experiments: {words}", file=sys.stderr, flush=True)
