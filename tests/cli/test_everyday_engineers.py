"""Twenty more tasks, as an engineer, an architect and a researcher ask them; each in at most two commands."""

import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest

import costmodel
import optimize
from optimize import cli
from tests.cli.test_everyday import JOB, QUICK, Task, Told, holds, says, written
from tests.support.files.fuzz_seeds import _KERNELS as KERNELS  # pyright: ignore[reportPrivateUsage]
from tests.support.schemas import schema

ODD = """accelerators = 12
accelerator = "a100-40gb"
[[tiers]]
name = "nvlink"
size = 4
bandwidth_gb_per_s = 200
latency_us = 2
[[tiers]]
name = "ethernet"
bandwidth_gbit_per_s = 25
latency_us = 20
"""
SCRIPT = """#!/bin/bash
TP=2
ARGS="--tensor-model-parallel-size $TP --pipeline-model-parallel-size 1 --micro-batch-size 2 --global-batch-size 64
  --seq-length 4096 --use-distributed-optimizer --bf16"
torchrun --nproc_per_node 8 pretrain_gpt.py ${ARGS}
"""
SMALL = ("--model", "small.toml", "--cluster", "h100", "--accelerators", "8")
DESIGN = ("design", "--model", "small.toml", "--tokens", "1e9", *QUICK, "--accelerators", "16", "--cluster", "h100")


def cheaper_to_own(told: list[Told], _: Path) -> None:
    owned, rented = (each.json["catalogue"]["value"] for each in told)
    assert 0 < owned < rented


def faster_without_the_limit(told: list[Told], _: Path) -> None:
    assert told[0].json["tokens_per_s"] < told[1].json["tokens_per_s"]


def own_nodes(told: list[Told], _: Path) -> None:
    assert "--fix domain=4 keeps to 3 of them" in " ".join(told[0].out.split()) or "stand idle" not in told[0].out
    assert told[1].json["plan"]["domain"] in (None, 4)


def page_of_plans(told: list[Told], folder: Path) -> None:
    html = (folder / "out/index.html").read_text()
    assert "best plan" in html
    assert (folder / "out/plans.csv.gz").stat().st_size > 0
    assert json.loads((folder / "out/result.json").read_text())["plan"]


TASKS: tuple[Task, ...] = (
    (
        "what does it cost to train this on 1 T tokens, and when is it done",
        (("explain", *JOB, "--tokens", "1e12"),),
        says("1.00 T tokens", "days", "USD", "MWh", "t CO2"),
    ),
    (
        "will it be done by then",
        (("explain", *JOB, "--tokens", "1e12", "--deadline-days", "90", "--json"),),
        holds(lambda told: 0 < told["time_to_target"]["deadline_probability"] < 1),
    ),
    (
        "how long to a loss of 2.2",
        (("explain", *JOB, "--target-loss", "2.2", "--json"),),
        holds(lambda told: told["time_to_target"]["tokens"] > 5e10),
    ),
    (
        "the fewest accelerators that do it in time",
        (("plan", *SMALL[:4], "--at-most", "16", "--fewest", "--tokens", "1e9", "--deadline-days", "1", *QUICK)
         + ("--json",),),
        holds(lambda told: told["range"]["best"]["accelerators"] >= 1),
    ),
    (
        "is a batch nearby better",
        (("plan", *SMALL, "--batch", "30:33", *QUICK, "--json"),),
        holds(lambda told: 30 <= told["range"]["best"]["batch"] <= 33),
    ),
    (
        "the plan with the least energy",
        (("plan", *SMALL, *QUICK, "--objective", "energy_j", "--tokens", "1e9", "--json"),),
        holds(lambda told: told["unit"] == "J" and told["value"] > 0),
    ),
    (
        "rent or buy",
        (
            (*DESIGN, "--budget-usd", "3e5", "--objective", "cost_usd", "--seconds", "10", "--json"),
            (*DESIGN, "--rent", "--budget-usd", "3e5", "--objective", "cost_usd", "--seconds", "10", "--json"),
        ),
        cheaper_to_own,
    ),
    (
        "a HuggingFace config on 16 A100, for torchtitan",
        (("plan", "--model", "config.json", "--sequence", "4096", "--batch", "64", "--cluster", "a100-80gb")
         + ("--accelerators", "16", *QUICK, "--launch", "torchtitan"),),
        says("tensor_parallel_degree", "local_batch_size"),
    ),
    (
        "what does my launch script cost",
        (("explain", *JOB[:4], "--accelerators", "8", "--plan", "train.sh", "--json"),),
        holds(lambda told: (told["plan"]["tensor"], told["plan"]["microbatch"], told["inputs"]["batch"]) == (2, 2, 64)),
    ),
    (
        "three nodes of four",
        (
            ("plan", *SMALL[:2], "--cluster", "odd.toml", "--batch", "24", *QUICK),
            ("plan", *SMALL[:2], "--cluster", "odd.toml", "--batch", "24", "--fix", QUICK[1] + ",domain=4", "--json"),
        ),
        own_nodes,
    ),
    (
        "what if its memory must suffice for sure",
        (("explain", *JOB, "--margin", "0.95", "--json"),),
        holds(lambda told: told["memory"]["fits"] and told["inputs"]["margin"] == 0.95),
    ),
    (
        "two plans of mine side by side",
        (("explain", *JOB, "--plan", "a.toml", "--against", "b.toml"),),
        says("A is faster with a probability", "pipeline bubble", "B / A"),
    ),
    (
        "my settings in a file, one of them changed",
        (("explain", "--config", "job.toml", "--batch", "128", "--json"),),
        holds(lambda told: told["inputs"]["batch"] == 128 and told["plan"]["recompute"] == "full"),
    ),
    (
        "does it fit on one",
        (("explain", "--model", "llama3-405b", "--cluster", "h100", "--accelerators", "1", "--batch", "8"),),
        says("does not fit on 1 h100", "needs is", status=3),
    ),
    (
        "a page of plans for my colleagues",
        (("plan", *SMALL, *QUICK, "--out", "out"),),
        page_of_plans,
    ),
    (
        "learn from kernels that I measured",
        (
            ("calibrate", "kernels.csv", "--cluster", "h100", "--out", "mine.toml"),
            ("explain", *JOB[:2], "--cluster", "mine.toml", *JOB[4:], "--json"),
        ),
        holds(lambda told: told["step_s"] > 0),
    ),
    (
        "what does recompute cost me",
        (("explain", *JOB, "--recompute", "full", "--json"), ("explain", *JOB, "--recompute", "none", "--json")),
        faster_without_the_limit,
    ),
    (
        "who can launch a model of my own",
        (("plan", "--model", "swin-c256", "--cluster", "h100", "--accelerators", "8", *QUICK),),
        says("not in a launch file: the model: of swin-c256"),
    ),
)  # fmt: skip


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    files = {
        "odd.toml": ODD,
        "train.sh": SCRIPT,
        "kernels.csv": KERNELS,
        "a.toml": "tensor = 2\npipeline = 1\ndata = 8\n",
    }
    files |= {"b.toml": "tensor = 1\npipeline = 2\ndata = 8\n"}
    files |= {"job.toml": 'model = "llama3-8b"\ncluster = "h100"\naccelerators = 64\ntensor = 4\nrecompute = "full"\n'}
    for name, text in files.items():
        (tmp_path / name).write_text(text)


@pytest.mark.parametrize(("words", "check"), [task[1:] for task in TASKS], ids=[task[0] for task in TASKS])
def test_a_task(words, check, capsys, tmp_path):
    told = []
    for command in words:
        told.append(Told(cli.run(list(command)), *capsys.readouterr()))
        if "--json" in command:
            jsonschema.validate(told[-1].json, schema(command[0] if told[-1].status == 0 else "refusal"))
    assert len(words) <= 2
    check(told, tmp_path)


def test_there_are_twenty_with_the_two_below():
    assert len(TASKS) == 18


def test_in_a_notebook():
    """The nineteenth: an answer in a cell, and its figure."""
    workload, cluster = costmodel.load_workload("llama3-8b", batch=64), costmodel.load_cluster("h100", accelerators=16)
    found = optimize.explain(workload, cluster, costmodel.Plan(data=8, tensor=2))
    assert "matmuls" in found._repr_html_()


def test_as_a_term_in_own_code():
    """The twentieth: what more of a rate would buy, by the same call with another leaf."""
    workload, cluster = costmodel.load_workload("llama3-8b", batch=64), costmodel.load_cluster("h100", accelerators=16)
    plan = costmodel.Plan(data=8, tensor=2)
    chip = dataclasses.replace(cluster.accelerator, hbm_bytes_per_s=2 * cluster.accelerator.hbm_bytes_per_s)
    faster = costmodel.evaluate(workload, dataclasses.replace(cluster, accelerator=chip), plan)
    assert faster.step_s < costmodel.evaluate(workload, cluster, plan).step_s
