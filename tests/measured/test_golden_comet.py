"""The cluster-design paper's simulator: two runs, its network bill, its byte counts, and footprints of ZeRO stages."""

import numpy as np
import pytest

from costmodel.evaluators.evaluate import evaluate
from experiments.cluster_design import simulator, sweep
from experiments.cluster_design.simulator import PLAN, RUNS, TABLE, cluster, one_product

BILL = TABLE["bill"]


@pytest.mark.parametrize("name", RUNS)
def test_times_and_bytes_of_the_published_runs(tmp_path, name):
    published, found = simulator.published(TABLE[name]), simulator.ours(TABLE[name], tmp_path)
    for quantity, value in found.items():
        tolerance = 1e-12 if quantity.endswith("_mib") else TABLE[name]["tolerance"]
        np.testing.assert_allclose(value, published[quantity], rtol=tolerance, err_msg=quantity)


@pytest.mark.parametrize("name", RUNS)
def test_network_bill_of_the_published_runs(tmp_path, name):
    found = evaluate(one_product(TABLE[name]), cluster(tmp_path, TABLE[name]), PLAN).economics
    assert found is not None
    for economics in (found.low, found.base, found.high):
        assert economics.bill is not None
        for where, item in zip(("inner", "outer"), economics.bill.network, strict=True):
            for part in ("link_usd", "switch_usd", "nic_usd"):
                np.testing.assert_allclose(getattr(item, part), BILL[f"{where}_{part}"], rtol=1e-12)
        np.testing.assert_allclose(economics.bill.usd, BILL["total_usd"], rtol=1e-12)


def test_byte_counts_of_the_trillion_parameter_transformer():
    layer, _, _ = simulator.layer_of_the_trillion()
    assert (layer.syncs, layer.backward_syncs) == (2, 2)
    assert layer.backward_sync_bytes == layer.sync_bytes
    for what, (published, ours) in simulator.byte_counts().items():
        assert ours == published, what


@pytest.mark.parametrize("degrees", TABLE["footprint"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_footprint_of_weights_gradients_and_states(degrees, stage):
    tensor, data = map(int, degrees.split("_"))
    gigabytes = sweep.footprint_bytes(sweep.plan_of(tensor, stage)) / 1e9
    n = 12 * 128 * 25600**2 / tensor / 1e9
    shared = {0: 16 * n, 1: (4 + 12 / data) * n, 2: (2 + 14 / data) * n, 3: 16 * n / data}
    np.testing.assert_allclose(gigabytes, shared[stage], rtol=1e-12)
    printed = TABLE["footprint"][degrees][stage]
    if TABLE["misprint"] == {"degrees": degrees, "stage": stage}:
        assert (printed, f"{gigabytes:.2f}") == ("264", "263.45")
        return
    assert f"{gigabytes:.{len(printed.partition('.')[2])}f}" == printed
