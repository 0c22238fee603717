"""Calibration from a user's own table of kernels and collectives, in the columns of the microbenchmarks."""

import csv
import json

import numpy as np
import pytest

from costmodel import specs
from costmodel.measured import posterior
from costmodel.measured.calibrate import calibrate_kernels
from costmodel.measured.fit.kernels import own_kernels
from costmodel.measured.own_table import collectives_of, is_microbenchmarks, read_microbenchmarks
from optimize import cli

COLUMNS = ("hardware", "n_devices", "nodes", "kind", "op", "dtype", "shape_or_bytes", "value", "unit")
SLOW = [("my box", 1, 1, "gemm", "mine", "bf16", f"m{m} n8192 k8192", 470, "TFLOP/s") for m in (4096, 8192, 16384)] + [
    ("my box", 1, 1, "attention", "mine fwd+bwd", "bf16", "headdim128 seq8192", 300, "TFLOP/s")
]
CALLS = [("my box", 8, 1, "collective", "all_reduce", "bf16", 2**k, 2**k / 1e5, "us") for k in range(20, 32, 2)]
CALLS += [("my box", 16, 2, "collective", "all_gather", "bf16", 2**30, 200.0, "GB/s busbw")]


def write(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    return path


def test_slow_products_slow_every_format(tmp_path):
    """Matmuls at .48 of the peak, where the fit knows .75 to .8: what is found is near what was measured."""
    path = write(tmp_path / "kernels.csv", SLOW)
    assert is_microbenchmarks(path)
    seen = own_kernels(read_microbenchmarks(path), specs.load_cluster("h100"))
    assert [kernel.kind for kernel in seen] == ["matmul"] * 3 + ["attention"]
    fitted, before, after = calibrate_kernels(seen)
    assert np.median(before[:3]) > 0.3
    assert np.median(after[:3]) < 0.08
    assert (fitted.z != posterior.shipped().z).any()


def test_collectives_are_times_or_bus_bandwidths(tmp_path):
    calls = collectives_of(read_microbenchmarks(write(tmp_path / "calls.csv", CALLS)))
    assert [call.op for call in calls] == ["all_reduce"] * 6 + ["all_gather"]
    assert calls[0].time_s == pytest.approx(1e-6 * 2**20 / 1e5)
    assert calls[-1].time_s == pytest.approx(15 / 16 * 2**30 / 200e9)
    assert (calls[0].domain, calls[-1].domain) == (0.0, 8.0)


def test_the_command_takes_the_table(tmp_path, capsys):
    path, out = write(tmp_path / "mine.csv", SLOW + CALLS), tmp_path / "mine.toml"
    assert cli.run(["calibrate", str(path), "--out", str(out)]) == 2
    assert "`cluster` is missing; expected the cluster that the table was measured on" in capsys.readouterr().err
    assert cli.run(["calibrate", str(path), "--cluster", "h100", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["used"]) == (11, 11)
    assert told["error_after"] < told["error_before"]
    shipped, mine = specs.load_cluster("h100").stack, specs.load_cluster(out).stack
    assert mine.matmul_ceiling < 0.8 * shipped.matmul_ceiling
    assert mine.link_ceiling < shipped.link_ceiling
    empty = write(tmp_path / "empty.csv", [])
    assert cli.run(["calibrate", str(empty), "--cluster", "h100", "--out", str(out)]) == 2
    assert "no row can be used" in capsys.readouterr().err
