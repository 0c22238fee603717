"""The `flexible_plans` experiment: what is drawn is what was played, spaces are nested, their plans are theirs."""

import pytest

from costmodel import Plan
from experiments.flexible_plans import orders, spaces


def test_timelines_are_orders_without_overlap():
    drawn = orders.timelines(6)
    ends = {name: max(span[3] for spans in devices for span in spans) for name, devices in drawn.items()}
    assert ends["the order that was found"] < ends["1F1B around shared blocks"]
    for devices in drawn.values():
        for spans in devices:
            assert all(a[3] <= b[2] + 1e-9 for a, b in zip(spans, spans[1:], strict=False))
            assert {span[1] for span in spans} == set(range(6))


def test_blocks_on_all_devices_start_together():
    for devices in orders.timelines(4).values():
        starts = [[(span[0], span[1], span[2]) for span in spans if span[0].startswith("A")] for spans in devices]
        assert all(own == starts[0] for own in starts)


def test_every_space_is_part_of_all():
    plans = list(spaces.plans(False))
    assert len(plans) == len(set(plans))
    assert all(plan.accelerators == spaces.ACCELERATORS for plan in plans)
    for space, allows in spaces.SPACES.items():
        assert any(map(allows, plans)), space
    assert not spaces.SPACES["DeepSpeed"](Plan(pipeline=2, data=4))
    assert not spaces.SPACES["Megatron"](Plan(data=8, zero_stage=3))


def test_the_gain_is_the_slowest_of_the_three_over_all():
    told = {"DeepSpeed": {"step_s": 2.0}, "Megatron": None, "Alpa, one stage": {"step_s": 3.0}, "all": {"step_s": 1.5}}
    assert spaces.gain({"spaces": told}) == pytest.approx(2.0)
    assert spaces.gain({"spaces": dict.fromkeys(told)}) is None


def test_axial_ranks_scale_as_measured():
    """Within 20 points of the measured efficiencies, and better for larger inputs."""
    two = []
    for row in spaces.axial("v100"):
        ours, measured = (each[0] / (2 * each[1]) for each in (row["ours_ms"], row["published_ms"]))
        assert ours == pytest.approx(measured, abs=0.20)
        two.append(ours)
    assert two == sorted(two)
