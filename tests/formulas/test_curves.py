"""Prices and powers of hardware of any rates: against real parts, in logarithms, and against `economics`."""

import dataclasses
import re

import numpy as np
import pytest

from costmodel.evaluators.dual import log_gradient
from costmodel.evaluators.evaluate import evaluate
from costmodel.formulas.curves import (
    Hardware,
    PowerLaw,
    capital_usd,
    chip_w,
    hardware_of,
    meter_w,
    with_hardware,
)
from costmodel.formulas.economics import bill, draw
from costmodel.inputs.plan import Plan
from costmodel.pytree import as_floats
from costmodel.specs.curves import anchored, priced
from costmodel.specs.files import SpecError
from costmodel.specs.loading import load_cluster, load_curves
from costmodel.specs.tables import read_tables
from costmodel.specs.workloads import load_workload
from tests.support.strategies import double

CURVES = load_curves()
CASES = ("low", "base", "high")
VARIABLES = (
    "flop_per_s", "hbm_bytes", "hbm_bytes_per_s", "scale_up_bytes_per_s", "scale_out_bytes_per_s",
    "second_memory_bytes",
)  # fmt: skip
PARTS = {  # name: errors of capital and of power at the meter, per cent, against prices.toml
    "h100": (0.0, -1.0),
    "h200": (-1.4, 0.8),
    "b200": (6.4, 2.6),
    "a100-80gb": (17.1, -4.9),
}


@pytest.mark.parametrize("name", PARTS)
def test_real_parts_within_the_stated_errors(name):
    cluster = load_cluster(name)
    assert cluster.prices is not None
    bought = bill(cluster, cluster.prices.base, cluster.accelerators).usd
    drawn = draw(cluster, cluster.prices.base, cluster.accelerators, 0.0).meter_w
    hardware = hardware_of(cluster)
    errors = 100 * (capital_usd(hardware, CURVES.base) / bought - 1), 100 * (meter_w(hardware, CURVES.base) / drawn - 1)
    np.testing.assert_allclose(errors, PARTS[name], atol=0.06)


def test_the_header_of_the_file_tells_these_errors():
    from costmodel.specs.tables import DATA

    header = (DATA / "curves.toml").read_text().partition("\n\n")[0]
    for error in ("H100 0.0 %, H200 -1.4 %, B200 +6.4 %", "H100 -1.0 %, H200 +0.8 %, B200 +2.6 %"):
        assert error in header


@pytest.mark.parametrize("name", ["h100", "h200", "b200"])
def test_the_range_holds_the_price_of_real_parts(name):
    cluster = load_cluster(name)
    assert cluster.prices is not None
    low, _, high = (capital_usd(hardware_of(cluster), getattr(CURVES, case)) for case in CASES)
    assert low <= bill(cluster, cluster.prices.base, cluster.accelerators).usd <= high


def random_hardware(rng, n):
    around = hardware_of(load_cluster("h100"))
    rates = {name: getattr(around, name) * np.exp(rng.uniform(-1.5, 1.5, n)) for name in VARIABLES}
    return rates, Hardware(**rates, accelerators=1024.0)


@pytest.mark.parametrize("formula", [capital_usd, meter_w])
@pytest.mark.parametrize("case", CASES)
def test_log_convex_and_rising(formula, case):
    rng, n, curves = np.random.default_rng(4), 20_000, getattr(CURVES, case)
    first, second = (random_hardware(rng, n)[0] for _ in range(2))
    between = {name: np.sqrt(first[name] * second[name]) for name in VARIABLES}
    values = [np.log(formula(Hardware(**rates, accelerators=1e3), curves)) for rates in (first, between, second)]
    assert (values[1] - (values[0] + values[2]) / 2).max() <= 1e-12
    more = {name: np.maximum(first[name], second[name]) for name in VARIABLES}
    assert (
        formula(Hardware(**more, accelerators=1e3), curves) >= formula(Hardware(**first, accelerators=1e3), curves)
    ).all()


def test_dual_numbers_and_traced_exponents():
    """Elasticities by dual numbers are those of JAX, which may also differentiate by an exponent."""
    import jax

    rates, _ = random_hardware(np.random.default_rng(5), 8)
    _, slopes = log_gradient(lambda v: capital_usd(Hardware(**v, accelerators=64.0), CURVES.base), rates)
    with double():
        given = {name: jax.numpy.asarray(rate) for name, rate in rates.items()}

        def total(given, exponent):
            law = dataclasses.replace(CURVES.base.flop_usd, exponent=exponent)
            curves = dataclasses.replace(CURVES.base, flop_usd=law)
            return jax.numpy.log(capital_usd(Hardware(**given, accelerators=64.0), curves)).sum()

        by_rate, by_exponent = jax.grad(total, argnums=(0, 1))(given, CURVES.base.flop_usd.exponent)
    for name, rate in rates.items():
        np.testing.assert_allclose(slopes[name], np.asarray(by_rate[name]) * rate, rtol=1e-9)
    h, at = 1e-6, CURVES.base.flop_usd.exponent
    by_hand = (total_of(rates, at + h) - total_of(rates, at - h)) / (2 * h)
    np.testing.assert_allclose(by_exponent, by_hand, rtol=1e-6)


def total_of(rates, exponent):
    curves = dataclasses.replace(CURVES.base, flop_usd=dataclasses.replace(CURVES.base.flop_usd, exponent=exponent))
    return np.log(capital_usd(Hardware(**rates, accelerators=64.0), curves)).sum()


@pytest.mark.parametrize("name", ["h100", "tpu-v5p"])
def test_a_cluster_with_its_own_hardware_is_itself(name):
    cluster = dataclasses.replace(as_floats(load_cluster(name, 64)), prices=None)
    same = with_hardware(cluster, hardware_of(cluster))
    assert [tier.bandwidth_bytes_per_s for tier in same.tiers] == [tier.bandwidth_bytes_per_s for tier in cluster.tiers]
    assert same == cluster


def test_other_widths_and_tiers_keep_their_ratios():
    cluster = as_floats(load_cluster("tpu-v5p", 64))
    twice = dataclasses.replace(hardware_of(cluster), flop_per_s=9.18e14, scale_up_bytes_per_s=4e11)
    found = with_hardware(cluster, twice)
    assert found.accelerator.peak_8bit_flop_per_s == 2 * cluster.accelerator.peak_8bit_flop_per_s
    assert [tier.bandwidth_bytes_per_s for tier in found.tiers] == [4e11, 4e11, 4e11, 6.25e9]


def test_a_designed_cluster_is_billed_as_its_curves_say():
    cluster = load_cluster("h100", 64)
    hardware = dataclasses.replace(hardware_of(as_floats(cluster)), flop_per_s=2e15, scale_up_bytes_per_s=9e11)
    found = evaluate(load_workload("llama3-8b"), priced(cluster, hardware, CURVES), Plan(data=64, zero_stage=3))
    assert found.economics is not None
    for case in CASES:
        paid = getattr(found.economics, case)
        np.testing.assert_allclose(paid.bill.usd, capital_usd(hardware, getattr(CURVES, case)), rtol=1e-12)
    draw = found.economics.base.draw
    usual_w = draw.facility_factor * (draw.full_w + draw.idle_w + sum(draw.network_w))
    np.testing.assert_allclose(usual_w, meter_w(hardware, CURVES.base), rtol=1e-12)
    assert found.economics.base.rental_usd is None


def test_idle_accelerators_draw_less():
    hardware = dataclasses.replace(hardware_of(load_cluster("h100", 72)), accelerators=72.0)
    busy, idle = meter_w(hardware, CURVES.base), meter_w(hardware, CURVES.base, idle=8.0)
    server_w = CURVES.base.facility_factor * CURVES.base.server_draw_factor * chip_w(hardware, CURVES.base)
    np.testing.assert_allclose(busy - idle, 8 * (0.75 - 0.16) * server_w, rtol=1e-12)


def test_a_power_law_by_hand():
    assert PowerLaw(amount=100.0, reference=4.0, exponent=0.5)(16.0) == 200.0


def test_every_curve_has_a_source_and_a_date():
    for name, table in read_tables("curves").items():
        assert [key for key in table if key.endswith(("_source", "_date")) and not table[key]] == []
        for law in (value for value in table.values() if isinstance(value, dict) and "amount" in value):
            assert len(law["source"]) > 10, name
            assert re.fullmatch(r"20\d\d-\d\d-\d\d", law["date"]), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("amount = 1", "amount = -1"), "`amount` is -1; expected a number >= 0"),
        (("reference_gb = 1", "reference_tb_per_s = 1"), "`reference_tb_per_s` is not a field here"),
        (("[hbm_usd]", "[dram_usd]"), "`dram_usd` is not a curve; expected one of flop_usd"),
        (("server_factor = 1.5", "server_factor = 0.5"), "`server_factor` is 0.5"),
        (("server_factor = 1.5\n", ""), "`server_factor` is missing"),
        (("amount = 1", "amount = { low = 1, high = 2 }"), "expected low, base, high"),
    ],
)
def test_wrong_curves_are_named(tmp_path, change, message):
    factors = (
        "server_factor = 1.5\nserver_draw_factor = 1.8\ntraining_draw = 0.7\nidle_draw = 0.1\nfacility_factor = 1.2\n"
    )
    units = {"flop": "tflop_per_s", "hbm": "gb", "second_memory": "gb"}
    laws = [f.name for f in dataclasses.fields(CURVES.base) if isinstance(getattr(CURVES.base, f.name), PowerLaw)]
    text = factors + "".join(
        f"[{law}]\namount = 1\nreference_{units.get(law.rpartition('_')[0], 'gb_per_s')} = 1\n" for law in laws
    )
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert load_curves(path).base.hbm_usd(2e9) == 2.0
    path.write_text(text.replace(*change, 1))
    with pytest.raises(SpecError, match=re.escape(message)):
        load_curves(path)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(SpecError, match="market-2026"):
        load_curves("market")


@pytest.mark.parametrize("name", ["h100", "b200", "gb200-nvl72", "mi300x"])
@pytest.mark.parametrize("case", CASES)
def test_anchored_curves_cost_and_draw_what_the_template_does(name, case):
    cluster = load_cluster(name)
    assert cluster.prices is not None
    known, curves = getattr(cluster.prices, case), getattr(anchored(CURVES, cluster), case)
    bought, hardware = bill(cluster, known, cluster.accelerators).usd, hardware_of(cluster)
    np.testing.assert_allclose(capital_usd(hardware, curves), bought, rtol=1e-12)
    drawn = draw(cluster, known, cluster.accelerators, 0.0).meter_w
    np.testing.assert_allclose(meter_w(hardware, curves), drawn, rtol=1e-12)
    assert curves.scale_out_usd == getattr(CURVES, case).scale_out_usd
    assert curves.flop_usd.exponent == getattr(CURVES, case).flop_usd.exponent


def test_where_a_price_is_not_known_the_curves_stay():
    """No price of a B300 is known, but its power is."""
    cluster = load_cluster("b300")
    found = anchored(CURVES, cluster)
    assert found.base.flop_usd == CURVES.base.flop_usd
    assert found.base.flop_w != CURVES.base.flop_w
    assert anchored(CURVES, dataclasses.replace(cluster, prices=None)) == CURVES
