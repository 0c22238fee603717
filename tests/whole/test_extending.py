"""The four additions of the README, from temporary files as they stand there: chip, model, collective, schedule."""

import contextlib
import dataclasses
import importlib.util
import itertools
import math
import re

import numpy as np
import pytest

from costmodel.evaluators.evaluate import evaluate, prepare
from costmodel.formulas import collectives
from costmodel.formulas.cost import cost
from costmodel.formulas.memory import in_flight
from costmodel.inputs.plan import Plan
from costmodel.inputs.schedules import SCHEDULES
from costmodel.inputs.workload import parameters
from costmodel.semantics import Exact
from costmodel.specs.loading import load_cluster
from tests.formulas.test_convexity import TOLERANCE, gaps
from tests.formulas.test_schedule import closed_s, played
from tests.support.builders import cluster, small_decoder
from tests.support.strategies import cluster_batch
from tests.whole.test_readme import README

SECTION = README[README.index("## Add your own") : README.index("## How it is built")]
FILES = {
    re.match(r"# (\S+)\n", block).group(1): block
    for block in re.findall(r"^```\w+\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
}


@pytest.fixture
def written(tmp_path):
    """The path of one of the README's files."""

    def write(name):
        path = tmp_path / name
        path.write_text(FILES[name])
        return path

    return write


@pytest.fixture
def imported(written):
    """The module of one of them; what it adds to tables is taken out again."""
    undo = contextlib.ExitStack()
    for table in (collectives.COLLECTIVES["all_reduce"], SCHEDULES):
        kept = dict(table)
        undo.callback(lambda table=table, kept=kept: (table.clear(), table.update(kept)))

    def load(name):
        spec = importlib.util.spec_from_file_location(name.removesuffix(".py"), written(name))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    undo.close()


def test_the_readme_shows_four_files_of_less_than_60_lines():
    assert list(FILES) == ["my_chip.toml", "my_model.py", "my_collective.py", "my_schedule.py"]
    assert all(len(text.splitlines()) < 60 for text in FILES.values())


def test_a_chip(written):
    own = load_cluster(str(written("my_chip.toml")), accelerators=64)
    assert own.accelerator.peak_16bit_flop_per_s == 640e12
    answer = evaluate(small_decoder(), own, Plan(data=8, tensor=8))
    assert answer.fits
    assert 0 < answer.mfu < 1


def test_a_model(imported):
    build = imported("my_model.py").vision_transformer
    large = build(layers=24, hidden=1024, heads=16, image=256, patch=16, classes=1000, batch=64)
    assert parameters(large) == 304_123_880  # ViT-L/16 without its class token and positions
    answer = evaluate(large, load_cluster("h100", 8), Plan(data=4, tensor=2))
    assert answer.fits
    assert 0 < answer.mfu < 1


def test_a_collective(imported):
    with pytest.raises(KeyError, match="two_shot"):
        step_s(dataclasses.replace(cluster().stack, all_reduce="two_shot"))
    imported("my_collective.py")
    nested, direct = (dataclasses.replace(cluster().stack, all_reduce=name) for name in ("nested", "two_shot"))
    assert step_s(direct) != step_s(nested)
    ranks, tiers = (8.0, 1.0), cluster().tiers
    law = collectives.all_reduce(ranks, tiers, direct, Exact(math))
    # by hand: 2 (n - 1) / n bytes a byte within a node, and two starts and hops
    assert law.by_tier[0] == pytest.approx(2 * 7 / 8 / (direct.link_ceiling * tiers[0].bandwidth_bytes_per_s))
    assert law.latency_s == pytest.approx(2 * (direct.collective_s + tiers[0].latency_s))


def step_s(stack):
    return evaluate(small_decoder(), cluster(), Plan(data=8, tensor=8), stack=stack).step_s


def test_the_step_stays_log_convex_with_the_collective(imported):
    imported("my_collective.py")
    rng, n = np.random.default_rng(1), 2_000
    workload, _, point = prepare(small_decoder(), cluster(), Plan(data=8, tensor=8))
    machine = cluster_batch(rng, n, 2)
    machine = dataclasses.replace(machine, stack=dataclasses.replace(machine.stack, all_reduce="two_shot"))
    gap = gaps(lambda at: np.log(cost(workload, at, point, Exact(np)).step_s), machine, rng, n)
    assert gap.max() <= TOLERANCE


def test_a_schedule(imported):
    """Closed form and memory against the schedule played out, and the step of a whole job."""
    imported("my_schedule.py")
    for p, m, transfer in itertools.product(range(1, 7), range(1, 20), (0.0, 0.1, 0.3)):
        expected = played("eager_1f1b", p, m, transfer=transfer)
        assert closed_s("eager_1f1b", p, m, transfer=transfer) == pytest.approx(expected.makespan_s, rel=1e-12)
        point = prepare(small_decoder(), cluster(), Plan(pipeline=p, schedule="eager_1f1b"))[2]
        held = [in_flight(point, float(m), float(p - device), Exact(math)) for device in range(p)]
        assert held == list(expected.in_flight)
    plans = [Plan(data=16, pipeline=4, schedule=name) for name in ("one_f_one_b", "eager_1f1b")]
    plain, eager = (evaluate(small_decoder(batch=512), cluster(), plan) for plan in plans)
    assert eager.step_s <= plain.step_s  # equal where the head on the last stage hides transfers
    assert closed_s("eager_1f1b", 4, 16, transfer=0.1) < closed_s("one_f_one_b", 4, 16, transfer=0.1)
    assert eager.memory.peak_bytes > plain.memory.peak_bytes
