"""The `cluster_design` experiment: the second memory, its crossing and gradient, the best hardware at equal cost."""

import math

import pytest

from costmodel.specs import SpecError
from experiments.cluster_design import experiment, real, sweep


def test_what_does_not_fit_lies_in_the_second_memory():
    plans = list(sweep.expanded(8))
    assert len(plans) == 4
    for plan in plans:
        held = sweep.footprint_bytes(plan)
        assert held == pytest.approx(sweep.HBM_BYTES - sweep.ROOM_BYTES, rel=1e-9)
    assert plans[-1].offload_gradients == 1.0
    assert plans[-1].offload_weights < plans[0].offload_weights


def test_the_gain_rises_to_that_of_unlimited_memory_and_crosses_where_it_says():
    found = sweep.expansion(8, sweep.REFERENCE, (1e10, 1e11, 1e12))
    gains = [*found["gain"], found["unlimited"]]
    assert gains == sorted(gains)
    even = sweep.expansion(8, sweep.REFERENCE, (found["breaks_even_at"],))
    assert even["gain"][0] == pytest.approx(1.0, rel=1e-6)


def test_elasticities_are_central_differences():
    plan, h = list(sweep.expanded(8))[-1], 1e-6
    slope = sweep.elasticities(plan, 3e10)["second memory bandwidth"]
    low, high = (math.log(sweep.step_s(plan, sweep.baseline(3e10 * (1 + s)))) for s in (-h, h))
    assert slope == pytest.approx((low - high) / (2 * h), rel=1e-4)


def test_the_pod_is_not_left_below_its_size():
    rows = {row["tensor"]: row for row in sweep.sweep()}
    assert [degree for degree, row in rows.items() if row["fits"]][0] == sweep.REFERENCE
    assert all(rows[d]["hidden_s"] <= rows[d]["exposed_s"] for d in rows)


def test_the_best_hardware_costs_what_the_template_costs_and_its_bound_holds():
    found = real.equal_cost("h100", 5)
    for words in real.KINDS:
        best = found[words]
        assert best["lower_bound_s"] <= best["step_s"] <= best["now_s"] * (1 + 1e-9)
        assert best["step_s"] / best["lower_bound_s"] - 1 < 10 * real.TOLERANCE
    assert found["pipelines"]["step_s"] <= found["sweep"]["step_s"] * (1 + 1e-3)


def test_more_memory_needs_fewer_accelerators():
    rows = real.recommendation("a100-80gb", (1.0, 4.0))
    assert rows[1]["accelerators"] < rows[0]["accelerators"]


@pytest.mark.parametrize("wrong", [{"expanded": (64,)}, {"expanded": (3,)}, {"proved": 0}, {"bandwidths_gb_per_s": ()}])
def test_wrong_settings_are_refused_in_one_line(wrong, tmp_path):
    with pytest.raises(SpecError, match="cluster_design: .*expected"):
        experiment.run(tmp_path, lambda _: None, **wrong)
