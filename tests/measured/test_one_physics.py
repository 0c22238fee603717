"""What is measured is what answers: rows are read into the four inputs of `evaluate`, which predicts them alike."""

import dataclasses
import itertools

import numpy as np
import pytest

import costmodel
from costmodel.evaluators import evaluate
from costmodel.exact import Exact
from costmodel.inputs import ALSO_KNOWN_AS, SOFTWARE, Kind, Plan
from costmodel.measured import Case, alternatives, evaluated, posterior, read_cases, settle
from costmodel.models import run_by
from costmodel.specs import SpecError, chosen_software
from tests.support import SHARED, often

EVERY = often(12, 6)


def _settled(name: str, step: int) -> list[Case]:
    cases = [case for case in read_cases(SHARED / "measurements" / f"{name}.csv")[::step] if isinstance(case, Case)]
    return settle(posterior.with_constants(cases))


@pytest.mark.parametrize("name", ["calibration", "validation"])
def test_rows_are_evaluated_as_they_are_predicted(name):
    """On every twelfth row (by night every sixth), time and memory, to 1e-9; open readings one by one."""
    readings = [reading for case in _settled(name, EVERY) for reading in alternatives(case)]
    figures = evaluated(readings)
    for reading, step_s, peak_bytes in zip(readings, figures.step_s, figures.peak_bytes, strict=True):
        answer = evaluate(reading.workload, reading.cluster, reading.plan, checked=False)
        np.testing.assert_allclose(answer.step_s, step_s, rtol=1e-9)
        np.testing.assert_allclose(answer.memory.peak_bytes, peak_bytes, rtol=1e-9)


def test_a_named_cluster_has_the_constants_of_a_row_of_its_software():
    """A row that says no more than its accelerator and software is answered by the named cluster, to 1e-5 (digits of
    the file that ships the constants)."""
    plain = [case for case in _settled("calibration", 1) if case.fabric in ("node", "infiniband")]
    plain = [case for case in plain if case.cluster.name in ("a100-80gb", "h100") and not case.facts]
    seen = set()
    for case in plain:
        if (case.cluster.name, case.stack) in seen:
            continue
        seen.add((case.cluster.name, case.stack))
        named = costmodel.load_cluster(case.cluster.name, software=case.stack).stack
        for field in ("matmul_ceiling", "attention_ceiling", "kernel_s", "hide_data", "logit_bytes"):
            np.testing.assert_allclose(getattr(named, field), getattr(case.cluster.stack, field), rtol=1e-5)
        assert named.software == case.stack
    assert len(seen) >= 3


def _reached(domains: int, copies: int) -> float:
    """Mean number of domains that hold at least one of `copies` experts, each in any domain, by enumeration."""
    ways = list(itertools.product(range(domains), repeat=copies))
    return sum(len(set(way)) for way in ways) / len(ways)


@pytest.mark.parametrize(("domains", "copies"), [(1, 2), (2, 2), (4, 2), (2, 8), (4, 4), (3, 5)])
def test_copies_of_a_token_for_one_domain_cross_the_network_once(domains, copies):
    from costmodel.formulas.counts import counts
    from costmodel.formulas.traffic import spread

    workload = costmodel.load_workload("mixtral-8x7b", batch=512)
    blocks = tuple(
        dataclasses.replace(
            block,
            ops=tuple(dataclasses.replace(op, copies=copies) if op.kind == Kind.EXCHANGE else op for op in block.ops),
        )
        for block in workload.blocks
    )
    cluster = costmodel.load_cluster("h100", accelerators=8 * domains)
    plan = Plan(data=8 * domains, expert=8 * domains)
    workload, cluster, point = costmodel.prepare(dataclasses.replace(workload, blocks=blocks), cluster, plan)
    sending = next(block for block in counts(workload, point, Exact(np)).blocks if block.exchanges)
    share = float(spread(sending, point, cluster.stack, Exact(np)))
    assert share == pytest.approx(_reached(domains, copies) / copies)
    every_copy = dataclasses.replace(cluster.stack, sent_once=0.0)
    assert float(spread(sending, point, every_copy, Exact(np))) == 1.0


def test_unfused_attention_computes_the_masked_half_too():
    workload, cluster = costmodel.load_workload("gpt3-175b", batch=64), costmodel.load_cluster("a100-80gb", 64)
    plan = Plan(tensor=8, pipeline=8, attention="unfused")
    flop, work = {}, {}
    for attention in ("flash", "unfused", "framework", "flash_1"):
        chosen = dataclasses.replace(plan, attention=attention)
        answer = costmodel.prepare(workload, cluster, chosen)
        counted = costmodel.parts(*answer, Exact(np)).counts
        flop[attention] = sum(a.flop for block in counted.blocks for a in block.attentions)
        work[attention] = answer[2].attention.work
    assert flop["unfused"] == flop["framework"] == pytest.approx(2 * flop["flash"])
    assert flop["flash_1"] == flop["flash"]
    assert work == {"flash": 1.0, "unfused": 1.0, "framework": 1.0, "flash_1": 1.6}


@pytest.mark.parametrize("name", sorted(SOFTWARE))
def test_a_workload_is_adapted_once(name):
    workload = costmodel.load_workload("llama3-8b")
    adapted = run_by(workload, SOFTWARE[name])
    assert run_by(adapted, SOFTWARE[name]) is adapted
    assert (adapted is workload) == (name in ("megatron-core", "megatron-2022", "xla", "xla-gpu"))


def test_software_has_names_and_a_default_for_every_accelerator():
    assert chosen_software("h100")[0] == "megatron-core"
    assert chosen_software("a100-80gb")[0] == "megatron-2022"
    assert chosen_software("tpu-v5p")[0] == "xla"
    assert {chosen_software("h100", name)[0] for name in ALSO_KNOWN_AS if name != "megatron-deepspeed"} <= set(SOFTWARE)
    for unknown, words in (("pytorch-lightning", "not known"), ("megatron-2022", "newer")):
        with pytest.raises(SpecError, match=words):
            costmodel.load_cluster("h100", software=unknown)
