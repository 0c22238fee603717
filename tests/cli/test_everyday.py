"""Twenty tasks of an everyday user, each in at most two commands: the answer is there, and it is checked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

from costmodel.specs.models import MODELS
from optimize import cli
from tests.support.files.configs import CONFIGS
from tests.support.row_by_hand import ROW
from tests.support.schemas import schema

OWN_CLUSTER = """accelerators = 32
accelerator = "h100"
[[tiers]]
name = "nvlink"
size = 8
bandwidth_gb_per_s = 450
latency_us = 1.5
[[tiers]]
name = "ethernet"
bandwidth_gbit_per_s = 100
latency_us = 5
"""
OWN_MODEL = """import costmodel

def mine():
    return costmodel.load_workload("llama3-8b", batch=64)

costmodel.register_model("mine", mine)
"""
SMALL = "layers = 4\nhidden = 512\nheads = 8\nffn = 2048\nvocabulary = 4096\nsequence = 512\nbatch = 32\n"
JOB = ("--model", "llama3-8b", "--cluster", "h100", "--accelerators", "16", "--batch", "64")
QUICK = ("--fix", "context=1,schedule=one_f_one_b")


class Told(NamedTuple):
    """What one command said."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)


def rows(folder: Path, **measured: str) -> None:
    own = [ROW | {"micro_batch": n, "id": f"run {n}"} | measured for n in ("1", "2", "4")]
    lines = [",".join(own[0]), *(",".join(f'"{cell}"' for cell in row.values()) for row in own)]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")


def written(folder: Path) -> None:
    """What users have beside them."""
    (folder / "my_cluster.toml").write_text(OWN_CLUSTER)
    (folder / "my_model.py").write_text(OWN_MODEL)
    (folder / "small.toml").write_text(SMALL)
    (folder / "config.json").write_text(json.dumps(CONFIGS["llama"]))
    (folder / "jobs.toml").write_text(
        '[[jobs]]\nmodel = "small.toml"\ntokens = 1e9\n[[jobs]]\nmodel = "small.toml"\ntokens = 2e9\nbatch = 16\n'
    )
    rows(folder, measured_step_s="4.0")


def first_plan(told: list[Told], _: Path) -> None:
    best = told[0].json
    assert best["gap"] == 0
    assert told[1].json["step_s"] == pytest.approx(best["step_s"], rel=1e-9)


def launched(told: list[Told], folder: Path) -> None:
    assert told[1].json["step_s"] == pytest.approx(json.loads((folder / "out/result.json").read_text())["step_s"])
    assert "--tensor-model-parallel-size" in (folder / "out/launch-megatron.sh").read_text()


def page(told: list[Told], folder: Path) -> None:
    html = (folder / "out/index.html").read_text()
    assert html.count("<img") >= 4
    assert "matmuls" in html
    assert json.loads((folder / "out/trace.json").read_text())


def says(*words: str, status: int = 0) -> Callable[[list[Told], Path], None]:
    def check(told: list[Told], _: Path) -> None:
        assert told[-1].status == status
        for word in words:
            assert word in told[-1].out + told[-1].err

    return check


def holds(claim: Callable[[dict[str, Any]], bool]) -> Callable[[list[Told], Path], None]:
    def check(told: list[Told], _: Path) -> None:
        assert told[-1].status == 0
        assert claim(told[-1].json)

    return check


def longer(told: list[Told], _: Path) -> None:
    assert told[1].json["step_s"] > told[0].json["step_s"]


def leaner(told: list[Told], _: Path) -> None:
    assert told[1].json["memory"]["peak_bytes"] < told[0].json["memory"]["peak_bytes"]


def calibrated(told: list[Told], folder: Path) -> None:
    errors = told[0].json
    assert errors["error_after"] < errors["error_before"]
    assert told[1].json["measured"]["median_error"] < 0.1


Task = tuple[str, tuple[tuple[str, ...], ...], Callable[[list[Told], Path], None]]
TASKS: tuple[Task, ...] = (
    (
        "which plan should I run, and why",
        (("plan", *JOB, *QUICK, "--json"), ("explain", "--plan", "{0}", *JOB[:4], "--batch", "64", "--json")),
        first_plan,
    ),
    (
        "launch it with Megatron",
        (
            ("plan", *JOB, *QUICK, "--only", "megatron", "--launch", "megatron", "--out", "out"),
            ("explain", *JOB[:4], "--plan", "out/launch-megatron.sh", "--json"),
        ),
        launched,
    ),
    ("what does a step cost", (("explain", *JOB),), says("step", "MFU", "USD a million tokens", "fits in memory")),
    ("one page for my manager", (("explain", *JOB, "--out", "out"),), page),
    ("is B200 worth it", (("explain", *JOB, "--against", "b200"),), says("b200", "faster")),
    (
        "does 405B fit on one node",
        (("explain", "--model", "llama3-405b", "--cluster", "h100", "--accelerators", "8"),),
        says("does not fit on 8 h100", "it fits with --accelerators", status=3),
    ),
    (
        "a model from HuggingFace",
        (("explain", "--model", "config.json", *JOB[2:], "--sequence", "8192", "--json"),),
        holds(lambda told: told["step_s"] > 0),
    ),
    (
        "my own cluster",
        (("explain", "--model", "llama3-8b", "--cluster", "my_cluster.toml", "--tensor", "8", "--json"),),
        holds(lambda told: told["inputs"]["accelerators"] == 32),
    ),
    (
        "my own model in Python",
        (("explain", "--with", "my_model.py", "--model", "mine", *JOB[2:6], "--json"),),
        holds(lambda told: told["inputs"]["batch"] == 64),
    ),
    (
        "a context of 128k tokens",
        (
            ("explain", *JOB[:6], "--batch", "8", "--sequence", "131072", "--context", "8", "--tensor", "2", "--json"),
            ("explain", *JOB[:6], "--batch", "8", "--sequence", "131072", "--context", "8", "--tensor", "2")
            + ("--context-kind", "all_to_all", "--recompute", "full", "--json"),
        ),
        leaner,
    ),
    (
        "bf16 or fp8",
        (
            ("explain", *JOB, "--precision", "fp8_tensor", "--tensor", "2", "--json"),
            ("explain", *JOB, "--precision", "bf16", "--tensor", "2", "--json"),
        ),
        longer,
    ),
    (
        "PyTorch FSDP instead of Megatron",
        (("explain", *JOB, "--software", "fsdp", "--zero-stage", "3", "--tensor", "1", "--json"),),
        holds(lambda told: told["inputs"]["software"] == "fsdp"),
    ),
    (
        "what would a faster network buy",
        (("explain", *JOB, "--tensor", "16", "--json"),),
        holds(lambda told: any("infiniband" in name for name in told["elasticities"])),
    ),
    (
        "how long will my runs take",
        (("predict", "rows.csv", "--out", "out"),),
        says("3 of 3 rows predicted", "beside 3 measured", "run 4"),
    ),
    ("why this row", (("predict", "rows.csv", "--explain", "2"),), says("row 2", "matmuls", "predicted:")),
    (
        "learn my machines from three runs",
        (
            ("calibrate", "rows.csv", "--out", "mine.toml", "--json"),
            ("predict", "rows.csv", "--out", "out.csv", "--stack", "mine.toml", "--json"),
        ),
        calibrated,
    ),
    ("which models and clusters are known", (("models",), ("clusters",)), says("h100", "gb200-nvl72")),
    ("complete my typing", (("--completion", "bash"),), says("_equipoise", "--power-mw", "calibrate")),
    (
        "which cluster should I buy, with a budget and a deadline",
        (("design", "--model", "small.toml", "--tokens", "1e9", "--budget-usd", "3e5", "--deadline-days", "30", *QUICK)
         + ("--accelerators", "16", "--cluster", "h100", "--objective", "cost_usd", "--seconds", "60", "--json"),),
        holds(lambda told: told["jobs"][0]["train_s"] <= 30 * 86400 and told["cluster"]["capital_usd"] <= 3e5),
    ),
    (
        "one cluster for two jobs",
        (("design", "--jobs", "jobs.toml", "--budget-usd", "3e5", *QUICK, "--accelerators", "16", "--cluster", "h100")
         + ("--seconds", "60", "--json"),),
        holds(lambda told: len(told["jobs"]) == 2),
    ),
)  # fmt: skip


@pytest.fixture(autouse=True)
def models_of_users_leave():
    yield
    MODELS.pop("mine", None)


@pytest.mark.parametrize(("words", "check"), [task[1:] for task in TASKS], ids=[task[0] for task in TASKS])
def test_a_task(words, check, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    told = []
    for number, command in enumerate(words):
        asked = [str(tmp_path / "0.json") if word == "{0}" else word for word in command]
        told.append(Told(cli.run(asked), *capsys.readouterr()))
        if "--json" in command:
            jsonschema.validate(told[-1].json, schema(command[0] if told[-1].status == 0 else "refusal"))
        (tmp_path / f"{number}.json").write_text(told[-1].out)
    check(told, tmp_path)


def test_there_are_twenty_of_at_most_two_commands():
    assert len(TASKS) == 20
    assert all(1 <= len(words) <= 2 for _, words, _ in TASKS)
