"""Fuzzed cluster files: keys dropped or misspelt, types changed, numbers absurd. An answer, or one clear line."""

import copy
import json
import math
import random

import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.inputs.plan import Plan
from costmodel.specs.files import SpecError
from costmodel.specs.loading import load_cluster
from costmodel.specs.rules import violations
from tests.support.builders import small_decoder

CLUSTER = {
    "accelerators": 64,
    "accelerator": {
        "peak_32bit_tflop_per_s": 494,
        "peak_16bit_tflop_per_s": 989,
        "peak_8bit_tflop_per_s": 1979,
        "hbm_mib": 81559,
        "hbm_tb_per_s": 3.35,
        "power_w": 700,
    },
    "tiers": [
        {"name": "nvlink", "size": 8, "bandwidth_gb_per_s": 450, "latency_us": 1.5, "in_network_reduction": 0.4},
        {"name": "rail", "size": 64, "bandwidth_gbit_per_s": 400, "latency_us": 2.7, "oversubscription": 1.5},
        {"name": "spine", "bandwidth_gbit_per_s": 200, "latency_us": 4.0},
    ],
    "stack": {"matmul_ceiling": 0.8, "kernel_s": 4e-6, "all_reduce_tree": 1.0},
}
WRONG = [None, True, "fast", "", [], {}, -1, -1e300, 0, 1e300, 10**40, math.nan, math.inf, 1e-300, [1, 2], "8"]


def paths(tree, here=()):
    """Every place in a nested table."""
    yield here
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in children:
        yield from paths(child, (*here, key))


def mutated(seed: int):
    """The cluster with one to three places dropped, replaced, or named wrongly."""
    rng, found = random.Random(seed), copy.deepcopy(CLUSTER)
    for _ in range(rng.randint(1, 3)):
        path = rng.choice([place for place in paths(found) if place])
        parent = found
        for key in path[:-1]:
            parent = parent[key]
        kind = rng.choice(["drop", "replace", "rename"])
        if kind == "replace":
            parent[path[-1]] = rng.choice(WRONG)
        elif kind == "rename" and isinstance(parent, dict):
            parent[f"{path[-1]}_x"] = parent.pop(path[-1])
        else:
            del parent[path[-1]]
    return found


def outcome(path) -> str:
    """`answer`, or the line that says what is wrong; anything else raises."""
    try:
        cluster = load_cluster(str(path))
        count = int(cluster.accelerators)
        workload, plan = small_decoder(batch=64), Plan(data=count)
        if violations(plan, workload, cluster):
            return "rules"
        answer = evaluate(workload, cluster, plan)
        assert math.isfinite(answer.step_s)
        assert answer.step_s > 0
    except SpecError as error:
        said = str(error)
    else:
        return "answer"
    assert len(said.splitlines()) == 1
    assert path.name in said
    return said


def test_the_unchanged_file_gives_an_answer(tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(CLUSTER))
    assert outcome(path) == "answer"


@pytest.mark.parametrize("batch", range(4))
def test_a_hundred_fuzzed_cluster_files(tmp_path, batch):
    ends = []
    for seed in range(25 * batch, 25 * (batch + 1)):
        path = tmp_path / f"cluster{seed}.json"
        path.write_text(json.dumps(mutated(seed)))
        ends.append(outcome(path))
    assert sum(end not in ("answer", "rules") for end in ends) > 10  # most changes are errors that are named
