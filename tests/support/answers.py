"""Answers of the whole tool, to the last digit, so that two versions of it can be compared.

usage: python -m tests.support.answers record FILE [quick] [explain|plan|design|predict|text ...]
       python -m tests.support.answers compare BEFORE AFTER

`record` asks the command line of whatever version `PYTHONPATH` names; it imports nothing else of it. `quick` asks every
tenth question of each kind. Times, versions and paths are left out. `compare` prints the answers that differ, with the
first leaves that do; exit status 1 then.
"""

import contextlib
import io
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support import SHARED

MEASUREMENTS = SHARED / "measurements"
LEFT_OUT = ("seconds", "versions", "out", "played_in_s")
_COUNTS = {"explain": 1300, "plan": 50, "design": 10}
_DENSE = ("llama3-8b", "llama3-70b", "llama3-405b", "llama2-13b", "gpt3-175b", "megatron-1t", "palm-540b")
_EXPERTS = ("mixtral-8x7b", "deepseek-v3", "qwen3-235b-a22b")
_CLUSTERS = ("a100-80gb", "h100", "h200", "b200", "gb200-nvl72", "tpu-v5p", "mi300x", "v100")

Case = tuple[str, list[str]]


def _explain_cases() -> Iterator[Case]:
    draw = random.Random(10)
    models = [*_DENSE, *_EXPERTS, "t5-11.6b", "swin-1.8b", "bert-large", "mbart-4.9b"]
    for i in range(_COUNTS["explain"]):
        words = ["--model", draw.choice(models), "--cluster", draw.choice(_CLUSTERS)]
        words += ["--accelerators", str(2 ** draw.randint(3, 12)), "--batch", str(2 ** draw.randint(6, 12))]
        if i % 3:
            words += [word for flag in ("tensor", "pipeline") for word in (f"--{flag}", str(2 ** draw.randint(0, 3)))]
            words += ["--microbatch", str(2 ** draw.randint(0, 2)), "--zero-stage", str(draw.randint(0, 3))]
            words += ["--schedule", draw.choice(("gpipe", "one_f_one_b", "zb_h1", "zb_h2", "zb_v"))]
            words += ["--recompute", draw.choice(("none", "selective", "full")), "--sequence-parallel"]
            words += ["--precision", draw.choice(("bf16", "bf16", "fp16", "fp8_tensor"))]
            words += ["--optimizer", draw.choice(("adam", "sgd", "muon"))]
            words += [f"--overlap-{part}" for part in ("data", "tensor", "pipeline") if draw.random() < 0.5]
        if i % 5 == 0:
            words += ["--context", str(2 ** draw.randint(0, 2)), "--attention", draw.choice(("unfused", "flash_2"))]
        yield f"explain {i}", ["explain", *words, "--json"]


def _plan_cases() -> Iterator[Case]:
    draw = random.Random(11)
    objectives = ("step_s", "cost_usd", "energy_j", "tokens_per_usd", "time_s")
    for i in range(_COUNTS["plan"]):
        model = draw.choice((*_DENSE[:5], *_EXPERTS[:1]))
        words = ["--model", model, "--cluster", draw.choice(_CLUSTERS[:6])]
        words += ["--accelerators", str(2 ** draw.randint(4, 8)), "--batch", str(2 ** draw.randint(6, 9))]
        if i % 4 == 3:
            words += ["--objective", draw.choice(objectives), "--tokens", "1e12"]
        if i % 5 == 1:
            words += ["--fix", draw.choice(("schedule=one_f_one_b", "tensor=4", "recompute=full", "zero_stage=1"))]
        if i % 10 == 2:
            words += ["--only", draw.choice(("megatron", "torchtitan", "maxtext", "deepspeed"))]
        yield f"plan {i}", ["plan", *words, "--json"]
    fast = ["--model", "llama3-8b", "--cluster", "h100", "--accelerators", "32", "--batch", "64"]
    yield "plan layers", ["plan", *fast, "--layers", "--json"]
    for framework in ("megatron", "megatron-bridge", "torchtitan", "maxtext", "deepspeed"):
        yield f"plan launch {framework}", ["plan", *fast, "--only", framework, "--launch", framework]


def _design_cases() -> Iterator[Case]:
    limits = (
        ["--budget-usd", "20e6"],
        ["--budget-usd", "200e6", "--power-mw", "20"],
        ["--power-mw", "5"],
        ["--accelerators", "512", "--budget-usd", "40e6"],
        ["--budget-usd", "30e6", "--rent", "--objective", "cost_usd"],
    )
    for i in range(_COUNTS["design"]):
        words = ["--model", ("llama3-8b", "llama3-70b", "gpt3-175b")[i % 3], "--tokens", "1e12"]
        yield f"design {i}", ["design", *words, *limits[i % len(limits)], "--seconds", "120", "--json"]


def _predict_cases(folder: Path) -> Iterator[Case]:
    for rows in ("calibration", "validation", "microbenchmarks"):
        if rows != "microbenchmarks":
            yield (
                f"predict {rows}",
                ["predict", str(MEASUREMENTS / f"{rows}.csv"), "--out", str(folder / f"{rows}.csv")],
            )


def _text_cases() -> Iterator[Case]:
    job = ["--model", "llama3-70b", "--cluster", "h100", "--accelerators", "64", "--batch", "128"]
    yield "text explain", ["explain", *job]
    yield "text against", ["explain", *job, "--against", "b200"]
    yield "text experts", ["explain", "--model", "mixtral-8x7b", "--cluster", "gb200-nvl72", "--accelerators", "64"]
    yield "text plan", ["plan", *job]
    yield "text models", ["models"]
    yield "text clusters", ["clusters"]
    for command in ("explain", "plan", "predict", "calibrate", "design", "models", "clusters"):
        yield f"text help {command}", [command, "--help"]
    for words in (["--tensor", "3"], ["--schedule", "zb"], ["--virtual-stages", "2"], ["--domain", "5"]):
        yield f"text refused {' '.join(words)}", ["explain", *job, *words]


def _ask(words: list[str]) -> dict[str, Any]:
    """Exit status, and standard output and error, of one command in this process."""
    from optimize.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as ending:
            status = ending.code
    text = out.getvalue()
    try:
        answer = json.loads(text)
    except json.JSONDecodeError:
        answer = text.splitlines()
    return {"status": status, "out": without(answer), "err": err.getvalue().splitlines()}


def without(tree: Any) -> Any:
    """`tree` without the keys that differ from run to run."""
    if isinstance(tree, dict):
        return {key: without(value) for key, value in tree.items() if key not in LEFT_OUT}
    return [without(item) for item in tree] if isinstance(tree, list) else tree


def record(path: Path, kinds: list[str]) -> None:
    """Ask everything of the kinds (default: of all), one line of JSON each."""
    kinds, step = [kind for kind in kinds if kind != "quick"], 10 if "quick" in kinds else 1
    os.environ["COLUMNS"] = "120"
    with tempfile.TemporaryDirectory() as folder, path.open("w") as file:
        groups: dict[str, Callable[[], Iterator[Case]]] = {
            "explain": _explain_cases,
            "text": _text_cases,
            "predict": lambda: _predict_cases(Path(folder)),
            "plan": _plan_cases,
            "design": _design_cases,
        }
        for kind in kinds or groups:
            start = time.perf_counter()
            for name, words in itertools.islice(
                groups[kind](), 0, None, step if kind not in ("text", "predict") else 1
            ):
                answer = _ask(words)
                if kind == "predict":
                    answer = {"status": answer["status"], "rows": Path(words[3]).read_text().splitlines()}
                file.write(json.dumps({"name": name, "answer": answer}) + "\n")
                file.flush()
            print(f"{kind}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


def compare(before: Path, after: Path) -> int:
    """Print what differs; how many answers do."""
    old, new = (
        {line["name"]: without(line["answer"]) for line in map(json.loads, path.read_text().splitlines())}
        for path in (before, after)
    )
    differing = 0
    for name in sorted(old.keys() & new.keys()):
        places = list(_differences(old[name], new[name], ""))
        differing += bool(places)
        for place in places[:3]:
            print(f"{name}: {place}")
    print(f"{len(old.keys() & new.keys())} answers compared, {differing} differ")
    return differing


def _differences(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from _differences(a, b, f"{path}[{i}]")
    elif old != new:
        yield f"{path}: {str(old)[:160]} -> {str(new)[:160]}"


def main() -> None:
    """Record or compare."""
    match sys.argv[1:]:
        case ["record", path, *kinds]:
            record(Path(path), kinds)
        case ["compare", before, after]:
            sys.exit(compare(Path(before), Path(after)) > 0)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
