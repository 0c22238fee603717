"""Modules of multi-token prediction: published totals, FLOP by hand, and where pipelines carry them."""

import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.inputs.plan import Plan, layers
from costmodel.inputs.workload import active_parameters, model_flop, parameters
from costmodel.specs.models import workload_from
from costmodel.specs.tables import read_tables
from tests.support.builders import cluster, small_decoder, small_moe


def deepseek(modules: int):
    table = {**read_tables("models")["deepseek-v3"], "mtp_layers": modules}
    return workload_from({name: value for name, value in table.items() if value}, {}, "here")


def test_the_module_of_deepseek_v3_is_the_published_one():
    """11.5 billion of its own, 2.4 for a token with the shared embedding and head; published weights, which repeat
    both (.9 each), are 685 billion. Source: deepseek-ai/DeepSeek-V3 at 0b39205, README.md and README_WEIGHTS.md."""
    plain, whole, shared = deepseek(0), deepseek(1), 2 * 129280 * 7168
    own = parameters(whole) - parameters(plain)
    assert own == pytest.approx(11.5e9, rel=0.01)
    assert active_parameters(whole) - active_parameters(plain) + shared == pytest.approx(2.4e9, rel=0.06)
    assert (round(parameters(plain) / 1e9), round((parameters(whole) + shared) / 1e9), shared // 2) == (
        671,
        684,
        926679040,
    )
    assert parameters(whole) + shared == pytest.approx(685e9, rel=0.001)
    assert layers(whole) == 62


@pytest.mark.parametrize("make", [small_moe, small_decoder])
@pytest.mark.parametrize("modules", [1, 2])
def test_a_module_computes_a_layer_a_projection_and_the_head(make, modules):
    plain, more, given = make(layers=4), make(layers=4 + modules), make(layers=4, mtp_layers=modules)
    tokens, hidden, vocabulary = plain.sequence, plain.hidden, 1000
    products = 2 * hidden * hidden + hidden * vocabulary
    assert model_flop(given) - model_flop(more) == 6 * modules * tokens * products
    assert parameters(given) - parameters(more) == modules * (2 * hidden * hidden + 3 * hidden)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(data=32, expert=8),
        Plan(data=8, pipeline=4, expert=4, stage_layers=(2, 2, 1, 1)),
        Plan(data=4, tensor=4, pipeline=2, expert=4, sequence_parallel=True, recompute="full"),
    ],
)
def test_a_module_takes_its_time_in_every_plan(plan):
    """As one more layer does, and its end beside the head; played out as it is told."""
    plain, given = small_moe(layers=6), small_moe(layers=5, mtp_layers=1)
    before, after = evaluate(plain, cluster(32), plan), evaluate(given, cluster(32), plan)
    assert before.step_s < after.step_s < 1.5 * before.step_s
    assert after.memory.last.logits_bytes == pytest.approx(2.0 * before.memory.last.logits_bytes, rel=0.02)
    assert after.memory.last.weights_bytes > before.memory.last.weights_bytes
