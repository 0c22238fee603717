"""The additions of docs/extending.md, as they stand there: chip, model, collectives, schedules; by code and command."""

import dataclasses
import importlib.util
import itertools
import json
import math
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

import costmodel
from costmodel.evaluators.evaluate import evaluate
from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas import collectives
from costmodel.formulas.cost import cost
from costmodel.formulas.memory import in_flight
from costmodel.inputs.plan import Plan
from costmodel.inputs.schedules import OWN_SCHEDULES, SCHEDULES, Schedule, ScheduleRow
from costmodel.inputs.workload import parameters
from costmodel.specs.loading import load_cluster
from costmodel.specs.models import MODELS
from costmodel.specs.rules import violations
from costmodel.specs.workloads import load_workload, model_names
from optimize.lattice.enumeration import lattice
from optimize.launch import FRAMEWORKS, Known, beside_launch, launch, read
from optimize.plans.find_in_lattice import find_in_lattice, find_plan_for
from optimize.status import CommandError
from tests.formulas.test_convexity import TOLERANCE, gaps
from tests.formulas.test_schedule import closed_s, played
from tests.support import ROOT
from tests.support.builders import cluster, small_decoder
from tests.support.strategies import cluster_batch
from tests.whole.test_readme import EXTENDING

SECTION = EXTENDING[EXTENDING.index("## Add your own") :]
FILES = {
    re.match(r"# (\S+)\n", block).group(1): block
    for block in re.findall(r"^```(?:toml|python)\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
}
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]
TABLES = (*collectives.COLLECTIVES.values(), SCHEDULES, OWN_SCHEDULES, MODELS)


@pytest.fixture
def folder(tmp_path):
    """All files of that section."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def imported(folder):
    """The module of one of them; what it adds to tables is taken out again."""
    kept = [dict(table) for table in TABLES]

    def load(name):
        spec = importlib.util.spec_from_file_location(name.removesuffix(".py"), folder / name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    for table, own in zip(TABLES, kept, strict=True):
        table.clear()
        table.update(own)


def run(folder, line):
    """A command as a user types it."""
    words = [sys.executable, "-m", "optimize.cli", *shlex.split(line)[1:]]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_the_readme_shows_files_of_less_than_60_lines():
    expected = ["my_chip.toml", "my_model.py", "my_collectives.py", "my_fabric.toml", "my_schedules.py", "my_orders.py"]
    assert list(FILES) == expected
    assert all(len(text.splitlines()) < 60 for text in FILES.values())
    assert all(" _" not in line and "._" not in line for text in FILES.values() for line in text.splitlines())


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_readme(folder, line):
    done = run(folder, line)
    assert (done.returncode, done.stderr) == (0, "")
    own = re.search(r"vit-large|schedule (\w+)|schedule=(\w+)", line)
    assert own is None or (own.group(1) or own.group(2) or "vit") in done.stdout


def test_a_chip(folder):
    own = load_cluster(str(folder / "my_chip.toml"), accelerators=64)
    assert own.accelerator.peak_16bit_flop_per_s == 640e12
    answer = evaluate(small_decoder(), own, Plan(data=8, tensor=8))
    assert answer.fits
    assert 0 < answer.mfu < 1


def test_a_model(imported):
    build = imported("my_model.py").vision_transformer
    assert parameters(build()) == 304_123_880  # ViT-L/16 without its class token and positions
    assert model_names()[-1] == "vit-large"
    large = load_workload("vit-large", batch=64)
    assert large == build(batch=64)
    answer = evaluate(large, load_cluster("h100", 8), Plan(data=4, tensor=2))
    assert answer.fits
    assert 0 < answer.mfu < 1
    with pytest.raises(ValueError, match="`sequence` is 128; expected none"):
        load_workload("vit-large", sequence=128)


def test_collectives(imported):
    with pytest.raises(KeyError, match="two_shot"):
        step_s(dataclasses.replace(cluster().stack, all_reduce="two_shot"))
    imported("my_collectives.py")
    nested, direct = (dataclasses.replace(cluster().stack, all_reduce=name) for name in ("nested", "two_shot"))
    assert step_s(direct) != step_s(nested)
    ranks, tiers = (8.0, 1.0), cluster().tiers
    law = collectives.all_reduce(ranks, tiers, direct, Exact(math))
    # by hand: 2 (n - 1) / n bytes a byte within a node, and two starts and hops
    assert law.by_tier[0] == pytest.approx(2 * 7 / 8 / (direct.link_ceiling * tiers[0].bandwidth_bytes_per_s))
    assert law.latency_s == pytest.approx(2 * (direct.collective_s + tiers[0].latency_s))


def test_an_all_to_all(imported, folder):
    imported("my_collectives.py")
    fabric = load_cluster(str(folder / "my_fabric.toml"))
    assert (fabric.stack.all_reduce, fabric.stack.all_to_all) == ("two_shot", "two_hop")
    ranks, stack, tiers = (8.0, 4.0), fabric.stack, fabric.tiers
    law = collectives.all_to_all(ranks, tiers, stack, Exact(math), 0.5)
    # by hand: 7/8 inside; 3/4 between domains, of which half is sent
    assert law.by_tier[0] == pytest.approx(7 / 8 / (stack.link_ceiling * tiers[0].bandwidth_bytes_per_s))
    assert law.by_tier[1] == pytest.approx(0.5 * 3 / 4 / (stack.peer_ceiling * tiers[1].bandwidth_bytes_per_s))
    assert law.latency_s == pytest.approx(2 * stack.collective_s + tiers[0].latency_s + tiers[1].latency_s)


def step_s(stack):
    return evaluate(small_decoder(), cluster(), Plan(data=8, tensor=8), stack=stack).step_s


def test_the_step_stays_log_convex_with_the_collective(imported):
    imported("my_collectives.py")
    rng, n = np.random.default_rng(1), 2_000
    workload, _, point = prepare(small_decoder(), cluster(), Plan(data=8, tensor=8))
    machine = cluster_batch(rng, n, 2)
    machine = dataclasses.replace(machine, stack=dataclasses.replace(machine.stack, all_reduce="two_shot"))
    gap = gaps(lambda at: np.log(cost(workload, at, point, Exact(np)).step_s), machine, rng, n)
    assert gap.max() <= TOLERANCE


def test_a_schedule(imported):
    """Closed form and memory against the schedule played out, and the step of a whole job."""
    imported("my_schedules.py")
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


def test_a_schedule_that_splits_weight_gradients(imported):
    """Between its neighbours in time and in memory; exact on even numbers of stages without transfers."""
    imported("my_schedules.py")
    for p, turns, times in itertools.product((2, 4, 6), (2, 3, 5), ((1.0, 1.0, 1.0), (1.0, 1.2, 0.8))):
        expected = played("zb_halfway", p, turns * p, times=times).makespan_s
        assert closed_s("zb_halfway", p, turns * p, times=times) == pytest.approx(expected, rel=1e-12)
        after, before = (closed_s(name, p, turns * p, times=times) for name in ("zb_h1", "zb_h2"))
        assert before - 1e-9 <= expected <= after + 1e-9
    plans = [Plan(data=16, pipeline=4, schedule=name) for name in ("zb_h1", "zb_halfway", "zb_h2")]
    peaks = [evaluate(small_decoder(batch=512), cluster(), plan).memory.peak_bytes for plan in plans]
    assert peaks == sorted(peaks)
    assert len(set(peaks)) == 3


def test_an_order_that_was_searched(imported):
    """Beside the others it is the best where ZB-H2 does not fit; played out, launched by torchtitan, read back."""
    imported("my_orders.py")
    workload, machine = small_decoder(layers=8, batch=64), cluster(8)
    names = ("zb_h1", "found_zero_bubble", "zb_h2")
    plans = [Plan(data=2, pipeline=4, schedule=name) for name in names]
    done = [evaluate(workload, machine, plan) for plan in plans]
    steps, peaks = ([each.step_s for each in done], [each.memory.peak_bytes for each in done])
    assert steps == sorted(steps, reverse=True)
    assert peaks == sorted(peaks)
    small = dataclasses.replace(machine.accelerator, hbm_bytes=0.5 * (peaks[1] + peaks[2]))
    tight = dataclasses.replace(machine, accelerator=small)
    fixed = {"pipeline": 4, "data": 2, "microbatch": 1, "recompute": "none", "schedule": frozenset(names)}
    answer = find_in_lattice(workload, tight, fixed=fixed)
    assert answer.plan.schedule == "found_zero_bubble"
    assert abs(answer.plans[0].validation.pipeline.difference) < 0.02
    plan = Plan(data=2, pipeline=4, schedule="found_zero_bubble", zero_stage=2, overlap_context=False)
    able = [name for name, framework in FRAMEWORKS.items() if framework.can(plan)]
    assert able == ["torchtitan"]
    assert "`schedule` is 'found_zero_bubble'" in " ".join(FRAMEWORKS["megatron"].cannot(plan))
    told = "for Megatron-LM: no plan that keeps what is fixed: `schedule` is 'found_zero_bubble'; Megatron-LM can be"
    with pytest.raises(CommandError, match=told):
        find_plan_for("megatron", workload, machine, fixed={"schedule": "found_zero_bubble", "pipeline": 4})
    text = launch("torchtitan", plan, workload, machine)
    fields = read(text, known=Known(layers=8)).fields
    assert fields["schedule"] == "found_zero_bubble"
    (rows,) = beside_launch("torchtitan", plan, workload).values()
    operations = [line.split(",") for line in rows.splitlines()]
    assert [line[0] for line in operations] == ["0F0", "1F0", "2F0", "3F0"]
    for stage, line in enumerate(operations):
        assert sorted(line) == sorted(f"{stage}{kind}{m}" for kind in "FIW" for m in range(32))


OWN = {
    "splits": Schedule(
        row=ScheduleRow(splits=1.0, stages_in_flight=1.5),
        warm_up=lambda stages, microbatches, virtual_stages, device: 3 * (stages - device) // 2,
        least_microbatches=lambda stages: 2 * stages,
    ),
    "interleaves": Schedule(  # a chunk more than Megatron-LM's
        row=ScheduleRow(interleaves=1.0, depth_in_flight=2.0, virtual_in_flight=1.0),
        warm_up=lambda stages, microbatches, virtual_stages, device: (
            2 * (stages - device) + (virtual_stages - 1) * stages
        ),
    ),
}


@pytest.mark.parametrize("kind", OWN)
def test_everything_knows_a_new_schedule(kind):
    """It is legal, searched like every other, played out, explained, and told on the screen."""
    workload, machine, own = small_decoder(layers=8, batch=64), cluster(16), OWN[kind]
    with costmodel.register_schedule("own", own):
        answer = find_in_lattice(workload, machine, fixed={"schedule": "own", "pipeline": 4})
        plan, check = answer.plan, answer.plans[0].validation.pipeline
        assert plan.schedule == "own"
        assert (plan.virtual_stages > 1) == own.interleaves
        assert violations(plan, workload, machine) == ()
        assert violations(dataclasses.replace(plan, virtual_stages=3 - min(plan.virtual_stages, 2)), workload, machine)
        assert abs(check.difference) < 0.03
        assert check.in_flight_difference < 1e-9
        every = lattice(workload, machine, {})
        columns = every.columns(np.arange(len(every)))
        chosen = columns["schedule"] == list(SCHEDULES).index("own")
        assert 0 < chosen.sum() < len(every)
        assert all(violations(every.plan(i), workload, machine) == () for i in np.flatnonzero(chosen)[::97])
        assert find_in_lattice(workload, machine).evaluations == len(every)


WRONG = {
    "a schedule that says less than it holds": (
        "my_schedules.py",
        ("depth_in_flight=2.0, extra_in_flight=-1.0", "depth_in_flight=1.0"),
        r'line 14: schedule "eager_1f1b", 2 stages, 3 microbatches: microbatches in flight on stage 0 by its row is 2; '
        "expected 3 as played out",
    ),
    "a schedule that says less than it takes": (
        "my_schedules.py",
        ("3 * (stages - device) // 2", "stages - device"),
        r'line 15: schedule "zb_halfway", 2 stages, 4 microbatches, F, B and W of 1, 1 and 1 s and transfers of 0.1 s: '
        r"the time by its row is [\d.]+ s; expected [\d.]+ s as played out, within 2 %",
    ),
    "a schedule that waits for ever": (
        "my_schedules.py",
        ("2 * (stages - device) - 1", "stages - device - 1"),
        r'line 14: schedule "eager_1f1b", 2 stages, 2 microbatches: ValueError: device 1 runs B0.1 before F0.1, '
        "whose result it reads",
    ),
    "a collective that talks to itself": (
        "my_collectives.py",
        ("tiers, stack, sem), 2.0)", "tiers, stack, sem), 2.0 - ranks[0])"),
        r'line 18: all_reduce "two_shot", 8 ranks: `by_tier\[0\]` is -[\de.-]+; expected a finite number >= 0',
    ),
    "a collective that branches on values": (
        "my_collectives.py",
        ("sem), 2.0)", "sem), 2.0 if ranks[0] > 2 else 1.0)"),
        r'line 18: all_reduce "two_shot", 8 ranks: TypeError: `greater` of a size; expected arithmetic and .*',
    ),
    "a collective that asks a library": (
        "my_collectives.py",
        ("sem), 2.0)", "sem), __import__('numpy').log2(1.0 + ranks[0]))"),
        r'line 18: all_reduce "two_shot", 8 ranks: TypeError: `log2` of a size; expected arithmetic and .*',
    ),
    "a collective that is faster over slower links": (
        "my_collectives.py",
        ("sem), 2.0)", "sem), tiers[0].bandwidth_bytes_per_s**2)"),
        r'line 18: all_reduce "two_shot", 8 ranks: the time of [\de+]+ bytes at half the bandwidth of tier 1 is .* s; '
        "expected at least the .* s of the whole",
    ),
    "a collective that is not log-convex": (
        "my_collectives.py",
        ("sem), 2.0)", "sem), sem.minimum(2.0, 6e11 / tiers[0].bandwidth_bytes_per_s))"),
        r'line 18: all_reduce "two_shot", 8 ranks: the time of [\de+]+ bytes is .* s; '
        r"expected at most .* s, the chord between two fabrics \(log-convexity\)",
    ),
    "a model without layers": (
        "my_model.py",
        ("repeats=layers)", "position=Position.LAST)"),
        r'line 21: model "vit-large": the number of its layers is 0; expected an integer >= 1',
    ),
    "a split that there is not": (
        "my_model.py",
        ("Size(value=hidden),)", "Size(value=hidden, split=('tensr',)),)"),
        r"line 21: model \"vit-large\": ValueError: size: `split` is 'tensr'; expected one of .*'tensor'.*",
    ),
    "no Python": ("my_model.py", ("def vision", "deff vision"), r"line 7: SyntaxError: invalid syntax"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_in_one_line_with_its_number(folder, name):
    file, (right, wrong), message = WRONG[name]
    text = FILES[file]
    assert right in text
    (folder / file).write_text(text.replace(right, wrong, 1))
    done = run(folder, f"equipoise models --with {file} --json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["status"] == "bad_input"
    assert re.fullmatch(rf"equipoise: command line: `--with` \({re.escape(file)}\), {message}\n", done.stderr)


TOLD = {
    "explain --help --with my_schedules.py": (0, r"one_f_one_b.*zb_halfway"),
    "--with my_schedules.py explain --model llama3-8b --cluster h100 --schedule zb": (
        2,
        r"expected one of .*zb_halfway",
    ),
    "explain --with=my_model.py --model vit-larg --cluster h100": (2, "did you mean vit-large"),
    "explain --model my_model.py --cluster h100": (
        2,
        "a Python file; expected TOML or JSON .--with my_model.py runs it",
    ),
    "explain --model llama3-8b --cluster my_fabric.toml": (2, "`all_reduce` is 'two_shot'; expected one of nested"),
    "models --with none.py": (2, "none.py.: no such file; expected a Python file"),
    "models --with": (2, "`--with` has no value; expected a Python file"),
    "--with my_model.py": (2, "the command is missing; expected one of explain"),
    "models --with my_model.py --with my_model.py": (2, "line 21: model: 'vit-large' is there already"),
}


@pytest.mark.parametrize("line", TOLD)
def test_what_the_command_line_tells(folder, line):
    status, told = TOLD[line]
    done = run(folder, f"equipoise {line}")
    assert done.returncode == status
    assert re.search(told, done.stderr + done.stdout, re.DOTALL)
    assert done.stderr.count("\n") == (status == 2)


def test_what_is_registered_is_gone_after_its_context():
    eager = SCHEDULES["gpipe"]
    with costmodel.register_schedule("again", eager):
        assert evaluate(small_decoder(), cluster(), Plan(data=16, pipeline=4, schedule="again")).step_s > 0
        with pytest.raises(ValueError, match="is there already"):
            costmodel.register_schedule("again", eager)
    assert "again" not in SCHEDULES
    costmodel.register_model("own", small_decoder()).close()
    costmodel.register_collective("neighbour", "own", collectives.COLLECTIVES["neighbour"]["direct"]).close()
    assert "own" not in model_names()
    assert list(collectives.COLLECTIVES["neighbour"]) == ["direct"]
