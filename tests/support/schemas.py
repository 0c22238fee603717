"""JSON Schemas of the answers of `--json`: `docs/schemas/NAME.json`, made from answers to questions of every kind.

usage: python -m tests.support.schemas     # writes them anew; a test holds that real answers are as they say

What every answer of a command holds is required; names that are data (of terms, of constants) are no properties. What
the keys at the top mean is said in `WORDS`, which must name each of them.
"""

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support import ROOT
from tests.support.row_by_hand import ROW

FOLDER = ROOT / "docs" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

_JOB = ("--model", "llama3-8b", "--cluster", "h100", "--accelerators", "16", "--batch", "64")
_MODEL = "layers = 4\nhidden = 512\nheads = 8\nffn = 2048\nvocabulary = 4096\nsequence = 512\nbatch = 32\n"
_DESIGN = ("design", "--model", "{model.toml}", "--tokens", "1e9", "--budget-usd", "3e5", "--cluster", "h100")
_FEW = ("--fix", "schedule=one_f_one_b,context=1,zero_stage=1", "--accelerators", "16", "--seconds", "60")
_MOE = ("--model", "mixtral-8x7b", "--cluster", "gb200-nvl72", "--accelerators", "64")
QUICK: dict[str, list[tuple[str, ...]]] = {
    "explain": [
        ("explain", *_JOB),
        ("explain", *_JOB, "--tensor", "4", "--pipeline", "2", "--against", "b200"),
        ("explain", *_MOE, "--offload-optimizer", "1.0"),
        ("explain", *_JOB, "--target-loss", "2.2", "--deadline-days", "90", "--repair-days", "3"),
        ("explain", *_JOB, "--tokens", "1e12", "--failures", "high"),
        ("explain", "--model", "llama3-8b", "--cluster", "tpu-v5p", "--accelerators", "16", "--stage-layers", "30", "2")
        + ("--pipeline", "2", "--tensor", "1"),
    ],
    "predict": [
        ("predict", "{rows.csv}", "--out", "{out.csv}"),
        ("predict", "{unmeasured.csv}", "--out", "{out.csv}"),
    ],
    "predict-explain": [("predict", "{rows.csv}", "--explain", "1")],
    "predict-columns": [("predict", "--columns")],
    "models": [("models",)],
    "clusters": [("clusters",)],
    "refusal": [("explain",), ("explain", *_JOB, "--tensor", "5"), ("plan", "--model", "nothing")],
}
"""Questions of each schema that take a second."""
SLOW: dict[str, list[tuple[str, ...]]] = {
    "plan": [
        ("plan", *_JOB, "--top", "3"),
        ("plan", *_JOB, "--objective", "cost_usd", "--tokens", "1e12", "--fix", "tensor=2", "--out", "{plan}"),
        ("plan", *_JOB, "--only", "megatron", "--launch", "megatron", "--layers"),
    ],
    "design": [
        (*_DESIGN, *_FEW),
        (*_DESIGN, *_FEW, "--power-mw", "5", "--sweep", "power_w"),
        (*_DESIGN, *_FEW, "--carbon-t", "0.05", "--repair-days", "3", "--deadline-days", "9"),
    ],
    "calibrate": [("calibrate", "{rows.csv}", "--out", "{out.toml}")]
    + [("calibrate", "{nccl.txt}", "--cluster", "h100", "--out", "{out.toml}")],
}
WORDS = {
    "schema": "the version of these keys; it grows where one changes its meaning",
    "status": "ok, bad_input, infeasible, out_of_time or incomplete (stopped: the best so far)",
    "message": "the status in words, or why there is no answer",
    "inputs": "what was asked, completed: enough to ask again",
    "versions": "of this and of the libraries below it",
    "seconds": "that the answer took",
    "violations": "rules that the plan breaks",
    "plan": "the fields of `costmodel.Plan`",
    "step_s": "seconds of one optimizer step",
    "tokens_per_s": "over all accelerators",
    "mfu": "model FLOP utilisation by `mfu_convention`",
    "hfu": "hardware FLOP utilisation: recompute counts",
    "terms": "of the step; their exposed seconds sum to it",
    "memory": "bytes by stage, and the limit",
    "elasticities": "per cent of the step for one per cent of a parameter; two numbers where left and right differ",
    "economics": "dollars, watts and joules; null where no price is known",
    "against": "the other answer, and the differences, the largest first",
    "gap": "how far the lower bound is below the value, relative",
    "value": "of the objective",
    "lower_bound": "that no plan searched is below (of an objective that grows: above)",
    "plans": "the best, in order",
    "rows": "of the table that was read",
    "predicted": "rows with a prediction",
    "unreadable": "rows without, and why",
    "measured": "errors beside `measured_*` columns; null without any",
    "columns_not_read": "columns that look like a misspelling of a known one",
}
"""What keys at the top mean, where their name does not say it."""
_DATA = ("terms", "second", "elasticities", "shadow_prices", "residuals", "fix", "columns", "words", "read", "versions")
"""Objects whose keys are data."""


def answer(words: Sequence[str], folder: Path) -> dict[str, Any]:
    """What a question of `QUICK` or `SLOW` prints."""
    from optimize import cli

    _files(folder)
    told = io.StringIO()
    asked = [word if not word.startswith("{") else str(folder / word.strip("{}")) for word in words]
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
        cli.run([*asked, "--json"])
    return json.loads(told.getvalue())


def _files(folder: Path) -> None:
    from costmodel.specs import write_table
    from tests.support.files.fuzz_seeds import NCCL

    (folder / "model.toml").write_text(_MODEL)
    (folder / "nccl.txt").write_text(NCCL)
    own = [ROW | {"id": f"row {n}", "micro_batch": str(n), "measured_step_s": str(2.0 + n)} for n in (1, 2, 4)]
    write_table(folder / "rows.csv", list(own[0]), [list(row.values()) for row in own])
    spoilt = [ROW, ROW | {"layers": "many"}]
    write_table(folder / "unmeasured.csv", list(ROW), [list(row.values()) for row in spoilt])


def schema_of(name: str, answers: Sequence[Any]) -> Schema:
    """The schema that all of these answers meet."""
    found = _inferred(answers, name in _DATA)
    for key, inner in found.get("properties", {}).items():
        if key in WORDS:
            inner["description"] = WORDS[key]
    return {"$schema": DRAFT, "title": f"equipoise {name.replace('-', ' --')} --json"} | found


def _inferred(values: Sequence[Any], keys_are_data: bool = False) -> Schema:
    kinds = sorted({_kind(value) for value in values})
    if {"integer", "number"} <= set(kinds):
        kinds.remove("integer")
    schema: Schema = {"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}
    objects = [value for value in values if isinstance(value, Mapping)]
    if objects and keys_are_data:
        schema["additionalProperties"] = _inferred([inner for value in objects for inner in value.values()])
    elif objects:
        names = dict.fromkeys(name for value in objects for name in value)
        inner = {name: _inferred([v[name] for v in objects if name in v], name in _DATA) for name in names}
        schema |= {"properties": inner, "required": [name for name in names if all(name in v for v in objects)]}
    items = [item for value in values if isinstance(value, list) for item in value]
    return schema | ({"items": _inferred(items)} if items else {})


def _kind(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def write() -> None:
    """All schemas anew."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, questions in (QUICK | SLOW).items():
            print(name, file=sys.stderr)
            schema = schema_of(name, [answer(words, Path(folder)) for words in questions])
            (FOLDER / f"{name}.json").write_text(json.dumps(schema, indent=1) + "\n")


if __name__ == "__main__":
    write()
