"""What `explain` computes: completed inputs, terms and stages that add up, the plan chosen where none is given."""

import dataclasses
import json
import math

import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.inputs.plan import Plan
from costmodel.specs.files import SpecError
from costmodel.specs.loading import load_cluster, load_curves
from costmodel.specs.plans import PLAN_CHECKS
from costmodel.specs.rules import violations
from costmodel.specs.workloads import load_workload
from optimize.cli.explain import resolve
from optimize.diagnosis.explain import explain_inputs, explanation_json, limiting
from optimize.diagnosis.operators import operators
from optimize.lattice.default_plan import choose_plan
from optimize.lattice.enumeration import lattice
from optimize.plans import find_in_lattice
from optimize.question import Job, Limits, design_problem
from optimize.status import CommandError, Status
from tests.support.builders import cluster, small_decoder

PLANS = {
    "one accelerator": {"model": "gpt-1.7b", "accelerators": 1, "batch": 4, "tensor": 1, "pipeline": 1},
    "pipeline": {"model": "llama3-70b", "accelerators": 64, "tensor": 8, "pipeline": 8, "sequence_parallel": True},
    "uneven": {"model": "llama3-8b", "accelerators": 3, "pipeline": 3, "tensor": 1, "stage_layers": (10, 12, 10)},
    "heavy late": {"model": "llama3-8b", "accelerators": 4, "pipeline": 4, "tensor": 1, "stage_layers": (5, 5, 17, 5)},
    "full recompute": {"model": "gpt3-175b", "accelerators": 64, "tensor": 8, "pipeline": 8, "recompute": "full"},
    "unfused": {"model": "gpt3-175b", "accelerators": 64, "tensor": 8, "pipeline": 8, "attention": "unfused"},
    "ZeRO 3": {"model": "llama3-70b", "accelerators": 64, "tensor": 1, "pipeline": 1, "zero_stage": 3, "context": 4},
    "offload": {
        "model": "llama3-70b",
        "accelerators": 32,
        "tensor": 8,
        "pipeline": 4,
        "offload_weights": 0.5,
        "offload_optimizer": 1,
        "offload_activations": 0.75,
    },
    "interleaved": {
        "model": "gpt3-175b",
        "accelerators": 64,
        "tensor": 8,
        "pipeline": 8,
        "schedule": "interleaved",
        "virtual_stages": 3,
    },
}


def explained(name: str):
    return explain_inputs(resolve({"cluster": "h100", **PLANS[name]}))


@pytest.mark.parametrize("name", PLANS)
def test_parts_add_up(name):
    explanation = explained(name)
    told = explanation_json(explanation)
    assert json.loads(json.dumps(told, allow_nan=False)) == json.loads(json.dumps(told))
    assert math.isclose(sum(t["exposed_s"] for t in told["terms"]), told["step_s"], rel_tol=1e-12)
    assert all(t["exposed_s"] >= -1e-12 and t["hidden_s"] >= -1e-9 for t in told["terms"])
    stages = told["memory"]["stages"]
    assert len(stages) == told["plan"]["pipeline"]
    assert max(sum(stage.values()) for stage in stages) == told["memory"]["peak_bytes"]
    assert all(size >= 0 for stage in stages for size in stage.values())
    assert len({frozenset(stage) for stage in stages}) == 1


@pytest.mark.parametrize("name", PLANS)
def test_the_second_memory_by_stage(name):
    explanation = explained(name)
    told, offloads = explanation_json(explanation)["memory"]["second_memory"], name == "offload"
    assert told["peak_bytes"] == max(sum(stage.values()) for stage in told["stages"])
    assert told["peak_bytes"] == pytest.approx(explanation.breakdown.memory.second_bytes, rel=1e-12)
    assert (told["peak_bytes"] > 0) == offloads
    assert told["fits"]
    assert told["limit_bytes"] == 250e9
    assert (told["stages"][0]["activations"] > told["stages"][-1]["activations"]) == offloads
    assert ("accelerator.second_memory_bytes_per_s" in explanation_json(explanation)["elasticities"]) == offloads


def test_a_plan_is_not_chosen_where_the_second_memory_is_short():
    asked = {"model": "llama3-70b", "accelerators": 32, "cluster": "h100", "tensor": 8, "offload_optimizer": 1.0}
    inputs = resolve({**asked, "recompute": "full"})
    needed = evaluate(inputs.workload, inputs.cluster, inputs.plan).memory.second_bytes
    chip = dataclasses.replace(inputs.cluster.accelerator, second_memory_bytes=needed / 2)
    short = dataclasses.replace(inputs.cluster, accelerator=chip)
    assert not evaluate(inputs.workload, short, inputs.plan).fits
    given = {"tensor": 8, "offload_optimizer": 1.0, "recompute": "full"}
    with pytest.raises(CommandError, match="does not fit"):
        choose_plan({**given, "pipeline": inputs.plan.pipeline}, inputs.workload, short)


@pytest.mark.parametrize("name", PLANS)
def test_the_fullest_stage_is_the_one_that_searches_see(name):
    explanation = explained(name)
    bound = explanation.breakdown.memory.peak_bytes
    if name == "heavy late":  # the heaviest middle stage is not the second: `cost` is above
        assert explanation.fullest.peak_bytes < bound
    else:
        assert explanation.fullest.peak_bytes == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize("name", PLANS)
def test_every_term_that_takes_time_has_a_limit(name):
    for term in explained(name).breakdown.terms:
        present = term.exposed_s + term.hidden_s > 1e-12
        assert (limiting(term) is not None) == present
        assert limiting(term) in (None, *term.limit_names)


def test_absent_terms_have_no_limit():
    told = {t["name"]: t["limited_by"] for t in explanation_json(explained("one accelerator"))["terms"]}
    assert told["tensor traffic"] is None
    assert told["pipeline bubble"] is None
    assert told["matmuls"] == "FLOP/s"


def test_recompute_is_in_hardware_flop_only():
    full = explained("full recompute").breakdown
    assert full.hfu > 1.2 * full.mfu
    pipeline = explained("pipeline").breakdown
    assert pipeline.hfu == pipeline.mfu


def test_operators_stay_below_the_roofs():
    for name in PLANS:
        explanation = explained(name)
        inputs = explanation.inputs
        chip = inputs.cluster.accelerator
        found = operators(inputs.workload, inputs.cluster, inputs.plan)
        assert {operator.kind for operator in found} == {"matmul", "attention", "memory"}
        for operator in found:
            assert operator.bytes_moved / operator.seconds < chip.hbm_bytes_per_s
            if operator.kind != "memory":
                assert operator.flop / operator.seconds < chip.peak_16bit_flop_per_s


def test_numbers_beyond_physics_are_refused():
    inputs = resolve({"cluster": "h100", **PLANS["pipeline"]})
    chip = dataclasses.replace(inputs.cluster.accelerator, hbm_bytes_per_s=1e-320)
    cluster = dataclasses.replace(inputs.cluster, accelerator=chip)
    with pytest.raises(CommandError, match="`matmuls` are not finite"):
        explain_inputs(dataclasses.replace(inputs, cluster=cluster))


# the plan where none is given


@pytest.mark.parametrize(
    ("model", "cluster", "accelerators"),
    [("llama3-8b", "h100", 16), ("llama3-70b", "h100", 64), ("llama3-8b", "a100-40gb", 64), ("gpt-1.7b", "h200", 8)],
)
def test_the_fastest_of_the_least_pipeline_beside_each_tensor_degree(model, cluster, accelerators):
    workload, machine = load_workload(model), load_cluster(cluster, accelerators)
    chosen, reason = choose_plan({}, workload, machine)
    assert reason.startswith("the fastest of all tensor degrees, each with the least pipeline degree that fits")
    assert not violations(chosen, workload, machine)
    assert evaluate(workload, machine, chosen).fits
    for tensor in (1, 2, 4, 8):
        each = [_default(accelerators, tensor, pipeline) for pipeline in (1, 2, 4, 8, 16, 32)]
        legal = [plan for plan in each if plan is not None and not violations(plan, workload, machine)]
        first = next((plan for plan in legal if evaluate(workload, machine, plan).fits), None)
        if first is not None:
            assert evaluate(workload, machine, chosen).step_s <= evaluate(workload, machine, first).step_s
        if tensor == chosen.tensor:
            assert first is not None
            assert chosen == dataclasses.replace(first, microbatch=chosen.microbatch)


def _default(accelerators: int, tensor: int, pipeline: int) -> Plan | None:
    if accelerators % (tensor * pipeline):
        return None
    data = accelerators // (tensor * pipeline)
    return Plan(data=data, tensor=tensor, pipeline=pipeline, sequence_parallel=tensor > 1)


def test_what_is_chosen_fits_where_stages_have_kinds_of_layer_of_their_own():
    """Swin's later stages hold more than the mean: `cost` spreads its layers evenly (50.8 MiB more was told to fit)."""
    told = explain_inputs(resolve({"model": "swin-10.4b", "cluster": "v100-16", "accelerators": 32}))
    assert told.inputs.chosen
    assert told.fits
    assert max(stage.peak_bytes for stage in told.stages) <= told.breakdown.limit_bytes


@pytest.mark.parametrize(("model", "least"), [("dlrm-criteo", 1024), ("bert-large", 2), ("llama3-70b", 1)])
def test_the_microbatch_is_larger_as_long_as_that_is_faster(model, least):
    workload, machine = load_workload(model), load_cluster("h100", 64)
    chosen, reason = choose_plan({}, workload, machine)
    assert reason.endswith("and its fastest microbatch")
    assert chosen.microbatch >= least
    twice = dataclasses.replace(chosen, microbatch=2 * chosen.microbatch)
    if not violations(twice, workload, machine):
        larger = evaluate(workload, machine, twice)
        room = 1.0 if model == "dlrm-criteo" else 0.9  # whose least plan fills more
        assert (
            larger.memory.peak_bytes > room * larger.limit_bytes
            or larger.step_s >= evaluate(workload, machine, chosen).step_s
        )
    assert choose_plan({"microbatch": 1}, workload, machine)[0].microbatch == 1


@pytest.mark.parametrize(
    ("cluster", "accelerators", "domain"),
    [("gb200-nvl72", 72, 72), ("h100", 12, 6), ("h100", 20, 5), ("h100", 16, None), ("h100", 6, None)],
)
def test_domains_that_the_usual_number_does_not_fill(cluster, accelerators, domain):
    workload, machine = load_workload("llama3-8b", batch=4 * accelerators), load_cluster(cluster, accelerators)
    plan, _ = choose_plan({}, workload, machine)
    assert plan.domain == domain
    assert not violations(plan, workload, machine)


def test_what_is_given_stays():
    inputs = resolve({"model": "llama3-70b", "cluster": "h100", "accelerators": 64, "tensor": 8, "recompute": "full"})
    assert (inputs.plan.tensor, inputs.plan.recompute) == (8, "full")
    assert inputs.plan.sequence_parallel is False
    assert inputs.chosen == "the least pipeline degree that fits in memory, and its fastest microbatch"


def test_layers_that_do_not_divide():
    asked = {"model": "llama3-405b", "cluster": "h100", "accelerators": 1024, "tensor": 8}
    inputs = resolve({**asked, "sequence_parallel": True})
    layers = inputs.plan.stage_layers
    assert layers is not None
    assert len(layers) == inputs.plan.pipeline
    assert sum(layers) == 126
    assert max(layers) - min(layers) == 1
    assert layers[0] == layers[-1] == min(layers)
    with pytest.raises(CommandError, match="`stage_layers`"):
        resolve({**asked, "pipeline": 16})
    assert resolve(asked).plan.sequence_parallel
    assert resolve(asked).chosen.endswith("with --sequence-parallel: nothing fits without")


def test_experts_are_divided_before_it_is_said_that_nothing_fits():
    workload, machine = load_workload("deepseek-v3"), load_cluster("h100", 2048)
    plan, reason = choose_plan({}, workload, machine)
    assert plan.expert > 1
    assert not violations(plan, workload, machine)
    assert evaluate(workload, machine, plan).fits
    least = "the least pipeline, then expert degree that fits in memory"
    assert reason == f"the fastest of all tensor degrees, each with {least}, and its fastest microbatch"


def test_what_needs_least_is_taken_before_it_is_said_that_nothing_fits():
    """A machine that the leanest plan of all just fills."""
    workload, machine = small_decoder(batch=8), cluster(4, domain=4)
    saving = {"recompute": "full", "recompute_share": 1.0, "zero_stage": 3, "microbatch": 1}
    whole = lattice(workload, machine, saving)
    least = min(float(evaluate(workload, machine, whole.plan(i)).memory.peak_bytes) for i in range(len(whole)))
    for bytes_of, fits in ((1.001, True), (0.999, False)):
        chip = dataclasses.replace(machine.accelerator, hbm_bytes=bytes_of * least)
        tight = dataclasses.replace(machine, accelerator=chip)
        if fits:
            assert evaluate(workload, tight, choose_plan({}, workload, tight)[0]).fits
        else:
            with pytest.raises(CommandError, match="does not fit"):
                choose_plan({}, workload, tight)


def test_sixteen_bits_where_the_chip_has_no_bf16():
    inputs = resolve({"model": "gpt-1.7b", "cluster": "v100", "accelerators": 64})
    assert (inputs.plan.precision, inputs.plan.gradient_dtype) == ("fp16", "fp16")
    with pytest.raises(CommandError, match="`precision` is bf16"):
        resolve({"model": "gpt-1.7b", "cluster": "v100", "accelerators": 64, "precision": "bf16"})


@pytest.mark.parametrize(
    ("asked", "gradients"),
    [
        ({"precision": "fp16"}, "fp16"),
        ({"precision": "fp16", "gradient_dtype": "fp32"}, "fp32"),
        ({"precision": "fp16", "software": "fsdp"}, "fp32"),
        ({"precision": "fp16", "software": "deepspeed"}, "fp16"),
        ({}, "fp32"),
    ],
)
def test_gradients_of_fp16_weights_as_the_software_sums_them(asked, gradients):
    """In `explain`, in `plan`, and in the question of `design`, whatever asks them."""
    asked = {"model": "gpt-1.7b", "cluster": "a100-80gb", "accelerators": 8} | asked
    inputs = resolve(asked)
    assert inputs.plan.gradient_dtype == gradients
    fixed = {name: value for name, value in asked.items() if name in PLAN_CHECKS} | {"tensor": 8}
    found = find_in_lattice(inputs.workload, inputs.cluster, fixed=fixed, top=1)
    assert found.plan.gradient_dtype == gradients
    limits, job = Limits(accelerators=8), Job(workload=inputs.workload, tokens=1e9)
    problem = design_problem(inputs.cluster, load_curves(), jobs=(job,), limits=limits, fixed=fixed)
    assert problem.fixed.get("gradient_dtype", Plan.gradient_dtype) == gradients


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"data": 4, "pipeline": 4}, "`pipeline` is 4; expected ones that leave `tensor` at most 8 of"),
        ({"data": 2, "tensor": 2}, "`data` is 2; expected ones that leave `pipeline` at most 32 of"),
        ({"data": 3}, "`data` is 3; expected degrees whose product divides"),
    ],
)
def test_degrees_that_do_not_make_up_the_cluster_say_what_is_left(given, told):
    with pytest.raises(CommandError) as caught:
        choose_plan(given, load_workload("llama3-8b"), load_cluster("h100", 1024))
    assert told in caught.value.message


def test_a_second_memory_is_used_before_it_is_said_that_nothing_fits():
    workload, machine = load_workload("llama3-70b"), load_cluster("h100", 8)
    plan, reason = choose_plan({}, workload, machine)
    assert not violations(plan, workload, machine)
    assert evaluate(workload, machine, plan).fits
    assert reason.endswith("with --offload-optimizer 1.0 --offload-gradients 1.0: nothing fits without")
    found = find_in_lattice(workload, machine, fixed={"offload_optimizer": 1.0, "offload_gradients": 1.0}, margin=0.5)
    assert float(evaluate(workload, machine, plan).step_s) < 1.15 * found.value  # which also divides sequences


def test_nothing_fits_says_what_would():
    workload, machine = load_workload("llama3-405b"), load_cluster("h100", 8)
    with pytest.raises(CommandError) as caught:
        choose_plan({}, workload, machine)
    assert caught.value.status is Status.infeasible
    assert "it fits with --accelerators" in caught.value.message
    asked = caught.value.message.rpartition("it fits with ")[2].split()
    flags = {
        name.removeprefix("--").replace("-", "_"): value for name, value in zip(asked[::2], asked[1::2], strict=True)
    }
    assert evaluate_with(flags)


def evaluate_with(flags: dict[str, str]) -> bool:
    count = int(flags.pop("accelerators"))
    fields = {name: int(value) if value.isdigit() else value for name, value in flags.items()}
    return explain_inputs(resolve({"model": "llama3-405b", "cluster": "h100", "accelerators": count, **fields})).fits


def test_no_legal_plan_is_bad_input():
    with pytest.raises(CommandError) as caught:
        resolve({"model": "llama3-8b", "cluster": "h100", "accelerators": 7, "batch": 3, "tensor": 1, "data": 7})
    assert caught.value.status is Status.bad_input
    assert caught.value.violations


def test_huge_clusters_are_quick_to_refuse():
    with pytest.raises((CommandError, SpecError), match="expected a divisor of the batch"):
        resolve({"model": "llama3-8b", "cluster": "h100", "accelerators": 10**18})


def test_a_margin_asks_for_more_room():
    """`--margin`: the limit is that of a plan which fits with the probability; what is predicted stays."""
    flags: dict[str, object] = {"model": "llama3-70b", "cluster": "h100", "tensor": 4, "pipeline": 4, "data": 32}
    flags |= {"batch": 1024, "recompute": "norms", "schedule": "interleaved", "virtual_stages": 20}
    flags |= {"sequence_parallel": True}
    plain, sure = (explain_inputs(resolve(flags | more)) for more in ({}, {"margin": 0.95}))
    assert plain.fits
    assert not sure.fits
    assert sure.fullest.peak_bytes == plain.fullest.peak_bytes
    assert 0.5 < sure.fits_probability == plain.fits_probability < 0.95
    assert explanation_json(sure)["inputs"]["margin"] == 0.95


def test_figures_of_money_are_the_sums_of_their_parts():
    """Purchase and watts, from the parts that the JSON tells; the interval is about the step."""
    told = explanation_json(explained("pipeline"))
    for money in (told["economics"], told["economics"]["low"], told["economics"]["high"]):
        bill, draw = money["bill"], money["draw"]
        network_usd = math.fsum(
            item[part] for item in bill["network"] for part in ("link_usd", "switch_usd", "nic_usd")
        )
        parts_usd = bill["servers_usd"] + bill["second_memory_usd"] + network_usd + bill["unlisted_network_usd"]
        assert money["purchase_usd"] == pytest.approx(parts_usd)
        machines_w = draw["servers_w"] + draw["idle_w"] + sum(draw["network_w"])
        assert money["meter_w"] == pytest.approx(draw["facility_factor"] * machines_w)
    assert told["step_s_p10"] < told["step_s"] < told["step_s_p90"]
    assert told["step_s_p10"] * told["step_s_p90"] == pytest.approx(told["step_s"] ** 2)
