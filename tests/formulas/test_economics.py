"""Money and energy: bills add up, units and directions are right, gradients are those of differences, prices agree."""

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.breakdown import breakdown
from costmodel.formulas.busy import busy
from costmodel.formulas.cost import cost, parts
from costmodel.formulas.economics import Busy, economics
from costmodel.inputs.plan import Plan
from costmodel.inputs.prices import Prices, TierPrices
from costmodel.pytree import as_floats
from costmodel.specs.files import SpecError
from costmodel.specs.loading import cluster_names, load_cluster
from costmodel.specs.tables import read_tables
from costmodel.specs.workloads import load_workload
from tests.support.builders import cluster, small_decoder
from tests.support.strategies import double
from tests.support.trees import flatten, unflatten

LEVEL = TierPrices(
    link_usd_per_bytes_per_s=4e-9,
    switch_usd_per_bytes_per_s=13e-9,
    nic_usd_per_bytes_per_s=2e-9,
    link_usd=50.0,
    switch_usd=300.0,
    nic_usd=700.0,
    draw_w_per_bytes_per_s=3e-10,
    draw_w=12.0,
)
LISTED = Prices(
    price_usd=23200.0,
    rental_usd_per_s=2.35 / 3600,
    second_memory_usd_per_byte=2e-9,
    server_factor=1.64,
    network_share=0.19,
    tiers=(LEVEL, dataclasses.replace(LEVEL, link_usd=90.0)),
    server_draw_factor=1.82,
    training_draw=0.75,
    idle_load=0.2,
    compute_load=0.8,
    hbm_load=0.3,
    link_load=0.1,
    idle_draw=0.16,
    network_draw_share=0.1,
    idle_paid=1.0,
    facility_factor=1.25,
    electricity_usd_per_j=0.0826 / 3.6e6,
    service_life_s=4 * 365.25 * 86400,
    carbon_g_per_j=400 / 3.6e6,
    accelerator_failure_s=3600.0 * 6e4,
    job_failure_s=3600.0 * 20,
    restart_s=660.0,
    checkpoint_bytes_per_s=1.2e8,
    checkpoint_stall=0.9,
    slow_accelerator_s=1e8,
    slow_for_s=1e3,
    slow_by=0.3,
    server_repair_s=0.0,
    spares_per_repair=12.0,
)
SPARED = dataclasses.replace(LISTED, server_repair_s=3e5)
UNLISTED = dataclasses.replace(SPARED, tiers=None)
ASKED = {"accelerators": 64.0, "domain": 6.0, "step_s": 12.0, "tokens": 4e6}
STATE = 1e11  # bytes
BUSY = {"compute": 0.7, "hbm": 0.2, "links": 0.4}  # shares of the step


def hardware():
    base = as_floats(cluster())
    chip = dataclasses.replace(base.accelerator, power_w=700.0, second_memory_bytes=2.5e11)
    tiers = (base.tiers[0], dataclasses.replace(base.tiers[1], oversubscription=2.0))
    return dataclasses.replace(base, accelerator=chip, tiers=tiers)


def arguments(prices):
    """All numbers of one call by path."""
    found = flatten(prices, "prices") | ASKED | BUSY
    found |= {"power_w": 700.0, "state_bytes": STATE}
    found["second_memory_bytes"] = 2.5e11
    return found | {f"tier{i}_bandwidth_bytes_per_s": x for i, x in enumerate((3e11, 3.75e10))}


def values(prices, numbers):
    """The public results of one call."""
    asked = unflatten(prices, numbers, "prices")
    machine = hardware()
    chip = dataclasses.replace(
        machine.accelerator, power_w=numbers["power_w"], second_memory_bytes=numbers["second_memory_bytes"]
    )
    tiers = tuple(
        dataclasses.replace(tier, bandwidth_bytes_per_s=numbers[f"tier{i}_bandwidth_bytes_per_s"])
        for i, tier in enumerate(machine.tiers)
    )
    machine = dataclasses.replace(machine, accelerator=chip, tiers=tiers)
    busy = Busy(**{f"{name}_s": numbers[name] * numbers["step_s"] for name in BUSY})
    found = economics(machine, asked, *(numbers[name] for name in ASKED), busy, numbers["state_bytes"])
    assert found.bill is not None
    assert found.draw is not None
    return {
        "bill_usd": found.bill.usd,
        "meter_w": found.draw.meter_w,
        "capital_usd": found.capital_usd,
        "energy_usd": found.energy_usd,
        "rental_usd": found.rental_usd,
        "joule_per_token_j": found.joule_per_token,
        "carbon_g": found.carbon_g,
        "usd_per_token_usd": found.usd_per_token,
    }


def dimensions(path):
    """Powers of usd, w, s, byte in the unit that the name's suffix says."""
    name = path.rpartition(".")[2]
    for suffix, powers in _UNITS.items():
        if name.endswith(f"_{suffix}"):
            return powers
    return (0, 0, 0, 0)


_UNITS = {  # longest first; grams are pure numbers here
    "g_per_j": (0, -1, -1, 0),
    "usd_per_bytes_per_s": (1, 0, 1, -1),
    "w_per_bytes_per_s": (0, 1, 1, -1),
    "bytes_per_s": (0, 0, -1, 1),
    "usd_per_byte": (1, 0, 0, -1),
    "usd_per_j": (1, -1, -1, 0),
    "usd_per_s": (1, 0, -1, 0),
    "bytes": (0, 0, 0, 1),
    "usd": (1, 0, 0, 0),
    "w": (0, 1, 0, 0),
    "j": (0, 1, 1, 0),
    "s": (0, 0, 1, 0),
}
KINDS = pytest.mark.parametrize("prices", [SPARED, UNLISTED], ids=["listed", "unlisted"])


@KINDS
def test_other_units_give_the_same_in_other_units(prices):
    factors = np.array([7.0, 0.3, 60.0, 1e-6])
    numbers = arguments(prices)
    scaled = {path: value * np.prod(factors ** np.array(dimensions(path))) for path, value in numbers.items()}
    for name, value in values(prices, scaled).items():
        expected = values(prices, numbers)[name] * np.prod(factors ** np.array(dimensions(name)))
        np.testing.assert_allclose(value, expected, rtol=1e-12, err_msg=name)


FALLS = {"domain", "service_life_s", "accelerator_failure_s", "job_failure_s", "checkpoint_bytes_per_s", "tokens"}
FALLS |= {"slow_accelerator_s"}


@KINDS
def test_nothing_is_cheaper_at_higher_prices_powers_or_bandwidths(prices):
    numbers = arguments(prices)
    before = values(prices, numbers)
    for path in numbers:
        after = values(prices, numbers | {path: 1.05 * numbers[path]})
        direction = -1 if path.rpartition(".")[2] in FALLS else 1
        for name in before:
            assert direction * (after[name] - before[name]) >= -1e-12 * before[name], (path, name)
        unused = path in ("prices.network_share", "prices.network_draw_share") or prices is UNLISTED
        assert unused or any(after[name] != before[name] for name in before), path


@KINDS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_under_jit_are_those_of_differences(prices, dtype):
    numbers = arguments(prices)
    names = list(values(prices, numbers))

    def logs(shifts):
        moved = {path: value * jnp.exp(shifts[path]) for path, value in numbers.items()}
        found = values(prices, moved)
        return jnp.stack([jnp.log(found[name]) for name in names])

    with double():
        still = {path: jnp.zeros((), dtype) for path in numbers}
        found = jax.jit(jax.jacrev(logs))(still)
    step = 1e-6
    for path in numbers:
        low, high = (values(prices, numbers | {path: numbers[path] * math.exp(h)}) for h in (-step, step))
        slopes = [math.log(high[name] / low[name]) / (2 * step) for name in names]
        np.testing.assert_allclose(found[path], slopes, atol=2e-6 if dtype == "float32" else 1e-8, err_msg=path)


@KINDS
def test_logs_are_convex_in_prices_powers_and_bandwidths(prices):
    """Posynomials: a chord in logs lies above. The domain and shares of the whole are enumerated or given."""
    rng, numbers = np.random.default_rng(0), arguments(prices)
    free = [
        path for path in numbers if path.rpartition(".")[2] not in ("domain", "network_share", "network_draw_share")
    ]
    first, second = ({p: numbers[p] * np.exp(rng.uniform(-1.5, 1.5, 2000)) for p in free} for _ in range(2))
    middle = {p: np.sqrt(first[p] * second[p]) for p in free}
    ends = [values(prices, numbers | chosen) for chosen in (first, second)]
    for name, value in values(prices, numbers | middle).items():
        assert np.all(value <= np.sqrt(ends[0][name] * ends[1][name]) * (1 + 1e-12)), name


def test_bill_and_power_add_up_by_hand():
    found = economics(hardware(), LISTED, **ASKED)
    paid = 64 + 64 / 6 * 2  # domains of 8, of which 6 are used
    servers, memory = paid * 23200 * 1.64, paid * 2.5e11 * 2e-9
    inner = paid * (50 + 300 + 700 + (4 + 13 + 2) * 300)
    outer = paid * (90 + 300 + 700 + (4 + 13 / 2 + 2) * 37.5)
    assert found.bill is not None
    assert found.draw is not None
    np.testing.assert_allclose([item.usd for item in found.bill.network], [inner, outer], rtol=1e-12)
    np.testing.assert_allclose(found.bill.usd, servers + memory + inner + outer, rtol=1e-12)
    watts = 700 * 1.82 * (64 * 0.75 + (paid - 64) * 0.16) + paid * (12 + 0.3 * 300 + 12 + 0.3 * 37.5)
    np.testing.assert_allclose(found.draw.meter_w, 1.25 * watts, rtol=1e-12)
    np.testing.assert_allclose(found.energy_usd, 1.25 * watts * 12 / 3.6e6 * 0.0826, rtol=1e-12)
    np.testing.assert_allclose(found.rental_usd, paid * 2.35 * 12 / 3600, rtol=1e-12)
    np.testing.assert_allclose(found.capital_usd, found.bill.usd * 12 / (4 * 365.25 * 86400), rtol=1e-12)
    np.testing.assert_allclose(found.usd_per_token, (found.capital_usd + found.energy_usd) / 4e6, rtol=1e-12)


def test_spares_are_bought_and_powered_idle_by_hand():
    """12 for each failure of 64 accelerators that is under repair: a failure in 60,000 hours, 300,000 s each."""
    without, found = (economics(hardware(), prices, **ASKED) for prices in (LISTED, SPARED))
    spares = 12 * 64 * 3e5 / (3600 * 6e4)
    paid = 64 + 64 / 6 * 2
    assert found.bill is not None
    assert without.bill is not None
    assert found.draw is not None
    assert without.draw is not None
    np.testing.assert_allclose(found.bill.usd / without.bill.usd, (paid + spares) / paid, rtol=1e-12)
    np.testing.assert_allclose(found.rental_usd / without.rental_usd, (paid + spares) / paid, rtol=1e-12)
    assert found.draw.servers_w == without.draw.servers_w
    np.testing.assert_allclose(found.draw.idle_w - without.draw.idle_w, spares * 0.16 * 700 * 1.82, rtol=1e-12)
    networks = (sum(draw.network_w) for draw in (found.draw, without.draw))
    np.testing.assert_allclose(next(networks) / next(networks), (paid + spares) / paid, rtol=1e-12)
    assert found.elapsed == without.elapsed  # a restart finds one ready in either case


def test_power_goes_by_busy_units_by_hand():
    """8 of 12 seconds at the arithmetic units, 3 of the HBM, 6 of messages; idle servers and the network stay."""
    usual, found = (
        economics(hardware(), LISTED, **ASKED, busy=busy)
        for busy in (None, Busy(compute_s=8.0, hbm_s=3.0, links_s=6.0))
    )
    assert usual.draw is not None
    assert found.draw is not None
    watts = 64 * 700 * 1.82 * 0.75 * (0.2 + 0.8 * 8 / 12 + 0.3 * 3 / 12 + 0.1 * 6 / 12)
    np.testing.assert_allclose(found.draw.servers_w, watts, rtol=1e-12)
    assert found.draw.full_w == usual.draw.servers_w
    assert (found.draw.idle_w, found.draw.network_w) == (usual.draw.idle_w, usual.draw.network_w)
    np.testing.assert_allclose(found.joule_per_step, 12 * found.draw.meter_w, rtol=1e-12)


@pytest.mark.parametrize("plan", [Plan(data=8, tensor=2, pipeline=2, sequence_parallel=True), Plan(data=32)], ids=str)
def test_busy_units_against_the_terms_of_the_step(plan):
    """Without recompute: the sides of rooflines that `explain` tells, and more for embedding and head."""
    workload, machine, point = prepare(small_decoder(), cluster(plan.accelerators), plan)
    done = parts(workload, machine, point, Exact(math))
    found = breakdown(workload, machine, point, done, Exact(math))
    units, terms = (
        busy(done.counts, done.times, done.step.work, point, machine),
        {term.name: term for term in found.terms},
    )

    def told_s(limit):
        return sum(sum(x for n, x in zip(t.limit_names, t.limits, strict=True) if n == limit) for t in terms.values())

    edges_s = sum(block.forward_s + block.backward_s + block.weights.seconds for block in done.times.blocks[::2])
    edges_s = edges_s * done.counts.microbatches / plan.pipeline
    assert told_s("FLOP/s") < units.compute_s < told_s("FLOP/s") + edges_s
    assert told_s("HBM bandwidth") < units.hbm_s < told_s("HBM bandwidth") + edges_s
    data = terms["data traffic"]
    assert units.links_s >= data.exposed_s + data.hidden_s
    assert units.compute_s < found.step_s


def test_an_h100_with_server_and_network_costs_what_independent_estimates_say():
    """Epoch AI's factors: 23,200 x 1.64 / 0.81 = 47,000; a bill of materials of August 2024: 38,800 + 4,200."""
    h100 = load_cluster("h100", accelerators=16384)
    assert h100.prices is not None
    base = h100.prices.base
    share = economics(h100, dataclasses.replace(base, tiers=None), 16384.0, 8.0, 1.0, 1.0)
    listed = economics(h100, base, 16384.0, 8.0, 1.0, 1.0)
    assert share.bill is not None
    assert listed.bill is not None
    np.testing.assert_allclose(share.bill.usd / 16384, 47_000, rtol=2e-3)
    np.testing.assert_allclose(listed.bill.usd / 16384, 38_800 + 4_200, rtol=0.03)
    np.testing.assert_allclose(listed.bill.network_usd / 16384, 4_200, rtol=1e-3)


def test_an_h100_hour_is_between_1_05_and_1_19_kilowatt_hours():
    h100 = load_cluster("h100", accelerators=8)
    assert h100.prices is not None
    hours = []
    for prices in (h100.prices.low, h100.prices.base):  # 1.1 and 1.25 at the meter
        found = economics(h100, prices, 1.0, 8.0, 3600.0, 1.0)
        assert found.draw is not None
        hours.append(found.draw.servers_w * found.draw.facility_factor / 1000)
    np.testing.assert_allclose(hours, [1.05, 1.19], atol=0.006)


def test_low_base_and_high_are_in_order_for_every_cluster():
    workload = load_workload("llama3-8b", batch=512)
    for name in cluster_names():
        precision = "bf16" if "bf16" in load_cluster(name).accelerator.types else "fp16"
        found = evaluate(workload, load_cluster(name, 64), Plan(data=64, zero_stage=3, precision=precision)).economics
        assert found is not None
        for kind in ("owned_usd", "rental_usd", "joule_per_token"):
            cases = [getattr(case, kind) for case in (found.low, found.base, found.high)]
            assert cases == [None] * 3 or cases[0] <= cases[1] <= cases[2], (name, kind)


def test_every_shipped_price_has_a_source_and_a_date():
    for section, table in read_tables("prices").items():
        for name, entry in {"": table}.items() if section == "defaults" else table.items():
            for key in ["source", *(key for key in entry if key.endswith("_source"))]:
                assert len(entry[key]) > 8, (section, name, key)
                assert re.fullmatch(r"20\d\d-\d\d-\d\d", entry[key.replace("source", "date")]), (section, name, key)


def test_what_is_not_known_is_none_and_the_rest_is_told():
    found = evaluate(load_workload("llama3-8b"), load_cluster("tpu-v5p", 64), Plan(data=64, zero_stage=3)).economics
    assert found is not None
    assert found.base.bill is not None
    assert (found.base.draw, found.base.owned_usd, found.base.usd_per_step) == (None, None, None)


def test_cost_does_not_read_prices():
    workload, h100 = small_decoder(), load_cluster("h100", 8)
    prepared = prepare(workload, h100, Plan(data=8))
    assert prepared[1].prices is None
    with_prices = dataclasses.replace(prepared[1], prices=as_floats(h100.prices))
    assert cost(prepared[0], with_prices, prepared[2], Exact(math)) == cost(*prepared, Exact(math))


def test_a_capped_clock_slows_arithmetic_and_leaves_memory_alone():
    workload, h100 = small_decoder(), load_cluster("h100", 8)
    slower = dataclasses.replace(h100, accelerator=dataclasses.replace(h100.accelerator, sustained_clock=0.5))
    full, half = (evaluate(workload, each, Plan(data=8)) for each in (h100, slower))
    before, after = ({term.name: term for term in found.terms} for found in (full, half))
    np.testing.assert_allclose(after["matmuls"].limits[0], 2 * before["matmuls"].limits[0], rtol=1e-12)
    assert after["norms, activations"].exposed_s == before["norms, activations"].exposed_s


def test_a_ring_along_an_axis_of_a_torus_uses_both_links():
    """All-gather of S bytes on a ring of 8 with 100 GB/s each way: half of the chunks go round either side."""
    from costmodel.formulas.collectives import all_gather
    from costmodel.inputs.stack import Stack

    ideal = Stack(link_ceiling=1.0, network_ceiling=1.0, collective_s=0.0, chunk_fill=0.0)
    v5p = load_cluster("tpu-v5p")
    law = all_gather((8.0, 1.0, 1.0, 1.0), v5p.tiers, ideal, Exact(math))
    size, link = 8e9, 100e9
    per_round = size / 8 / 2 / link  # one chunk's half over one link; seven rounds
    np.testing.assert_allclose(law.seconds_per_byte * size, 7 * per_round, rtol=1e-12)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("[prices]\nprice_usd = { low = 1, high = 2 }", "expected low, base, high"),
        ("[prices]\nprice_usd = -1", "`price_usd` is -1"),
        ("[prices]\nserver_factor = 0.5", "`server_factor` is 0.5; expected a number >= 1"),
        ("[prices]\nnetwork_share = 1", "`network_share` is 1"),
        ("[prices]\nelectricity_usd_per_mwh = 3", "did you mean electricity_usd_per_kwh"),
        ("prices = 3", "`prices` is 3; expected a table"),
        ("[[tiers]]\nsize = 8\nbandwidth_gb_per_s = 1\nlatency_us = 1\nswitch_usd = 'x'", "`switch_usd` is 'x'"),
    ],
)
def test_wrong_prices_are_named(tmp_path, lines, message):
    tiers = "" if "tiers" in lines else "[[tiers]]\nsize = 8\nbandwidth_gb_per_s = 1\nlatency_us = 1\n"
    front, back = (lines + "\n", "") if lines.startswith("prices") else ("", lines)
    path = tmp_path / "mine.toml"
    path.write_text(f'accelerator = "h100"\naccelerators = 8\n{front}{tiers}{back}\n')
    with pytest.raises(SpecError, match=re.escape(message)):
        load_cluster(path)


def test_what_fails_more_often_costs_more_days_dollars_joules_and_grams():
    """All by the same factor: one figure for what is lost, and nothing is counted twice."""
    often = dataclasses.replace(LISTED, accelerator_failure_s=0.1 * LISTED.accelerator_failure_s)
    never = dataclasses.replace(LISTED, accelerator_failure_s=math.inf, job_failure_s=math.inf, slow_by=0.0)
    found, worse, best = (
        economics(hardware(), prices, **ASKED, state_bytes=STATE) for prices in (LISTED, often, never)
    )
    assert (best.elapsed, economics(hardware(), LISTED, **ASKED).elapsed) == (1.0, 1.0)
    assert worse.elapsed > found.elapsed > 1.0
    for name in ("capital_usd", "energy_usd", "rental_usd", "joule_per_token", "carbon_g"):
        ratio = getattr(worse, name) / getattr(best, name)
        np.testing.assert_allclose(ratio, worse.elapsed, rtol=1e-12, err_msg=name)
    assert (worse.bill, worse.draw) == (best.bill, best.draw)
