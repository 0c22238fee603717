"""JSON Schemas of the answers of `--json`: `docs/schemas/NAME.json`, made from answers to questions of every kind.

usage: python -m tests.support.schemas [NAME ...]   # widens them by what these questions say, and writes them
       python -m tests.support.schemas anew         # writes them as these questions alone say it

What stands in a schema is kept: it grows by kinds of values and keys that come, and loses what is required where an
answer lacks it, so that nothing is forgotten that another question showed.

What every answer of a command holds is required; names that are data (of terms, of constants) are no properties. What
the keys at the top mean is said in `WORDS`, which must name each of them.
"""

import contextlib
import dataclasses
import io
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

from costmodel.inputs import Plan
from tests.support import ROOT
from tests.support.row_by_hand import ROW

FOLDER = ROOT / "docs" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

_JOB = ("--model", "llama3-8b", "--cluster", "h100", "--accelerators", "16", "--batch", "64")
_MODEL = "layers = 4\nhidden = 512\nheads = 8\nffn = 2048\nvocabulary = 4096\nsequence = 512\nbatch = 32\n"
_DESIGN = ("design", "--model", "{model.toml}", "--tokens", "1e9", "--budget-usd", "3e5", "--cluster", "h100")
_FEW = ("--fix", "schedule=one_f_one_b,context=1,zero_stage=1", "--accelerators", "16", "--seconds", "60")
_FIX = "schedule=one_f_one_b,recompute=none,context=1,zero_stage=1"
_RANGE = ("--model", "llama3-8b", "--cluster", "h100", "--fix", _FIX)
_SMALL = (
    ("tpu-v5p", "--accelerators", "16"),
    ("h100", "--accelerators", "16", "--any"),
    ("v100", "--accelerators", "16", "--objective", "energy_j", "--tokens", "1e9"),
)
_MOE = ("--model", "mixtral-8x7b", "--cluster", "gb200-nvl72", "--accelerators", "64")
QUICK: dict[str, list[tuple[str, ...]]] = {
    "explain": [
        ("explain", *_JOB),
        ("explain", *_JOB, "--tensor", "4", "--pipeline", "2", "--against", "b200"),
        ("explain", *_MOE, "--offload-optimizer", "1.0"),
        ("explain", *_JOB, "--target-loss", "2.2", "--deadline-days", "90", "--repair-days", "3"),
        ("explain", *_JOB, "--tokens", "1e12", "--failures", "high"),
        ("explain", *_JOB, "--margin", "0.9", "--against", "tpu-v5p"),
        ("explain", "--model", "swin-1.8b", "--cluster", "v100", "--accelerators", "16"),
        ("explain", "--model", "llama3-8b", "--cluster", "tpu-v5p", "--accelerators", "16", "--stage-layers", "30", "2")
        + ("--pipeline", "2", "--tensor", "1"),
    ],
    "predict": [
        ("predict", "{rows.csv}", "--out", "{out.csv}"),
        ("predict", "{unmeasured.csv}", "--out", "{out.csv}"),
        ("predict", "{rows.csv}", "--out", "{out.csv}", "--stack", "{stack.toml}", "--software", "fsdp"),
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
        ("plan", *_JOB, "--fix", _FIX, "--only", "torchtitan", "--launch", "torchtitan", "--framework-version", "main"),
        ("plan", *_RANGE, "--accelerators", "16:24", "--batch", "48:50", "--tokens", "1e11", "--deadline-days", "99"),
        ("plan", *_RANGE, "--fewest", "--batch", "64"),
        ("plan", *_RANGE, "--accelerators", "24", "--batch", "512"),
        *(("plan", "--model", "{model.toml}", "--cluster", *words) for words in _SMALL),
    ],
    "design": [
        (*_DESIGN, *_FEW),
        (*_DESIGN, *_FEW, "--power-mw", "5", "--sweep", "power_w"),
        (*_DESIGN, *_FEW, "--carbon-t", "0.05", "--repair-days", "3", "--deadline-days", "9"),
        (*_DESIGN, *_FEW, "--objective", "tokens_per_usd"),
        (*_DESIGN, *_FEW, "--objective", "cost_usd", "--rent"),
        ("design", "--jobs", "{jobs.toml}", *_DESIGN[5:], *_FEW),
    ],
    "calibrate": [
        ("calibrate", "{rows.csv}", "--out", "{out.toml}"),
        ("calibrate", "{nccl.txt}", "--cluster", "h100", "--out", "{out.toml}"),
    ],
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
    "parameters": "of the model, a tied head counted once",
    "active_parameters": "that work on one token",
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
_PLAN = {field.name for field in dataclasses.fields(Plan)}


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
    jobs = f'[[jobs]]\nmodel = "{folder / "model.toml"}"\ntokens = 1e9\n'
    (folder / "jobs.toml").write_text(jobs + jobs + "batch = 16\n")
    (folder / "stack.toml").write_text("[stack]\nmatmul_ceiling = 0.8\n")
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


def schema(name: str) -> Schema:
    """What `docs/schemas` says of a command's answers."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def merged(known: Schema, more: Schema) -> Schema:
    """The schema that all meet which meet one of the two."""
    if not known or not more:
        return known or more
    found = known | more | {"type": _kinds(known, more)}
    for inner in ("properties", "items", "additionalProperties"):
        if inner in known and inner in more:
            each = known[inner], more[inner]
            found[inner] = merged(*each) if inner != "properties" else _both(*each)
    if "properties" in found:
        found["required"] = [name for name in found["required"] if all(_requires(of, name) for of in (known, more))]
    return found


def _both(known: Mapping[str, Schema], more: Mapping[str, Schema]) -> dict[str, Schema]:
    names = dict.fromkeys((*known, *more))
    return {name: merged(known.get(name, {}), more.get(name, {})) for name in names}


def _requires(of: Schema, name: str) -> bool:
    """Whether a schema demands a key; one without objects says nothing of it."""
    return "properties" not in of or name in of["required"]


def _kinds(*schemas: Schema) -> str | list[str]:
    told = [of["type"] if isinstance(of["type"], list) else [of["type"]] for of in schemas]
    kinds = sorted({kind for each in told for kind in each})
    if {"integer", "number"} <= set(kinds):
        kinds.remove("integer")
    return kinds[0] if len(kinds) == 1 else kinds


_JSON = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}


def _of_plans() -> Schema:
    """A plan, by the types of its fields: no answer shows them all."""
    hints, own = get_type_hints(Plan), {}
    for field in dataclasses.fields(Plan):
        among = get_args(hints[field.name]) or (hints[field.name],)
        kinds = sorted(_JSON.get(kind, "array") for kind in among)
        own[field.name] = {"type": kinds[0] if len(kinds) == 1 else kinds}
        own[field.name] |= {"items": {"type": "integer"}} if "array" in kinds else {}
    return {"type": "object", "properties": own, "required": list(own)}


def _inferred(values: Sequence[Any], keys_are_data: bool = False) -> Schema:
    plans = [value for value in values if isinstance(value, Mapping) and value.keys() == _PLAN]
    if plans and all(value is None or value in plans for value in values):
        return _of_plans() | ({} if len(plans) == len(values) else {"type": ["null", "object"]})
    kinds = sorted({_kind(value) for value in values})
    if {"integer", "number"} <= set(kinds):
        kinds.remove("integer")
    found: Schema = {"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}
    objects = [value for value in values if isinstance(value, Mapping)]
    if objects and keys_are_data:
        found["additionalProperties"] = _inferred([inner for value in objects for inner in value.values()])
    elif objects:
        names = dict.fromkeys(name for value in objects for name in value)
        inner = {name: _inferred([v[name] for v in objects if name in v], name in _DATA) for name in names}
        found |= {"properties": inner, "required": [name for name in names if all(name in v for v in objects)]}
    items = [item for value in values if isinstance(value, list) for item in value]
    return found | ({"items": _inferred(items)} if items else {})


def _kind(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def write(names: Sequence[str] = ()) -> None:
    """The schemas of these names, or all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, questions in (QUICK | SLOW).items():
            if not {name, "anew"}.isdisjoint(names) or not names:
                print(name, file=sys.stderr)
                found = schema_of(name, [answer(words, Path(folder)) for words in questions])
                found = (
                    found if "anew" in names or not (FOLDER / f"{name}.json").exists() else merged(schema(name), found)
                )
                (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    write(sys.argv[1:])
