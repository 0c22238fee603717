"""The `comp_vs_comm` experiment: laws and shares by counting, projections against their oracle."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel import load_cluster
from experiments import beside
from experiments.comp_vs_comm import layer, maps, projection
from experiments.comp_vs_comm.projection import SEM, grid


@pytest.mark.parametrize(("hidden", "sequence", "tensor", "k"), [(4096, 1024, 16, 1), (16384, 2048, 32, 2)])
def test_the_share_is_what_counting_gives(hidden, sequence, tensor, k):
    """Ring wire traffic 2 (t - 1) / t of four all-reduces of 2 H T bytes, at 80 % of 150 GB/s."""
    sizes = layer.arranged(hidden=float(hidden), sequence=float(sequence), tensor=float(tensor))
    found = layer.counted(layer.bare(layer.one_layer(sizes)), layer.elementary(k), sizes, SEM)
    flop = 3 * (24 * hidden**2 + 4 * sequence * hidden) * sequence / tensor
    compute_s = flop / (0.6 * k * layer.PEAK)
    sent_s = 8 * 2 * (tensor - 1) / tensor * hidden * sequence / (0.8 * layer.RING)
    assert layer.share(found[1]) == pytest.approx(sent_s / (sent_s + compute_s), rel=1e-9)
    assert layer.edge(found[0]) == pytest.approx((9 * hidden + 1.5 * sequence) / tensor, rel=1e-12)
    assert layer.slack(found[0]) == pytest.approx(2 * sequence, rel=1e-12)


def test_newton_finds_the_ratio_where_the_share_is_what_was_asked():
    cluster = load_cluster("h100", accelerators=1024)
    sizes = grid({"hidden": [4096, 65536], "sequence": [4096], "tensor": [8]})
    factors = maps.factor_at(lambda _, times: layer.share(times), 0.05, cluster, sizes)
    workload = layer.one_layer(sizes)
    shares = layer.share(layer.counted(workload, layer.evolved(cluster, factors), sizes, SEM)[1])
    np.testing.assert_allclose(shares, 0.05, rtol=1e-5)
    assert factors[0] < 1 < factors[1]


def test_elasticities_are_central_differences():
    cluster, h = load_cluster("a100-80gb", accelerators=1024), 1e-6
    sizes = grid({"hidden": [4096], "sequence": [4096], "tensor": [32]})
    found = maps.elasticities(cluster, sizes)

    def seconds(factor):
        outer = dataclasses.replace(
            cluster.tiers[1], bandwidth_bytes_per_s=factor * cluster.tiers[1].bandwidth_bytes_per_s
        )
        faster = dataclasses.replace(cluster, tiers=(cluster.tiers[0], outer))
        times = layer.counted(layer.one_layer(sizes), faster, sizes, SEM)[1]
        return float((layer.compute_s(times) + layer.serialized_s(times))[0])

    central = (math.log(seconds(1 + h)) - math.log(seconds(1 - h))) / (2 * h)
    assert found["scale-out bandwidth"][0] == pytest.approx(central, rel=1e-4)


def test_a_projection_of_the_profiled_layer_is_exact():
    cluster = load_cluster("a100-80gb", accelerators=1024)
    found = projection.projected(cluster, grid({name: [value] for name, value in projection.BASE.items()}))
    assert found["error_one"]["mean"] < 1e-12
    assert found["layers"] == 1


def test_measured_matmuls_are_read(tmp_path):
    rows = [f"a,x,gemm,bf16,m{m} n4096 k4096,{100 + m / 1000},TFLOP/s" for m in range(1024, 10240, 1024)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["source,hardware,kind,dtype,shape_or_bytes,value,unit", *rows]))
    (found,) = projection.measured(path)
    assert found["matmuls"] == 9
    assert found["error_few"]["median"] < 0.05


def test_lines_say_what_holds_and_what_does_not():
    good = beside.line("a", 2.0, "P", 2.1, allowed=(1.9, 2.2))
    bad = beside.line("b", 2.0, "S", 3.0, allowed=(1.9, 2.2))
    known = beside.line("c", 2.0, "S", 3.0, allowed=(1.9, 2.2), explained="because")
    assert [each["verdict"] for each in (good, bad, known)] == ["holds", "fails", "explained"]
    assert good["ratio"] == pytest.approx(1.05)
    assert beside.failed([good, known]) is None
    assert beside.failed([good, bad, known]) == "b is 3"
    with pytest.raises(ValueError, match="trust is 'U'"):
        beside.line("remembered", 1.0, "U", 1.0)
