"""`equipoise measure`: its table, its cluster file, its fit against machines that are known, and a real, short run."""

import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.formulas import collectives, larger
from costmodel.inputs.plan import Plan
from costmodel.measured import COLUMNS, Devices, Measured, Node, as_rows, fit_node, kernels, measure
from costmodel.measured.collective_fit import times_s
from costmodel.measured.node import programs
from costmodel.measured.node.devices import Loop
from costmodel.measured.node.fit import HEADROOM
from costmodel.measured.node.observations import observation
from costmodel.measured.node.table import LINEAR
from costmodel.models.decoder import decoder
from costmodel.specs import CollectiveRow
from costmodel.specs.loading import load_cluster
from optimize.cli.measure import Answer, write
from tests.support import ROOT

PUBLISHED = ROOT.parent / "shared" / "measurements" / "microbenchmarks.csv"
NODE = Node(kind="processor", platform="cpu", devices=2, nodes=1, memory_bytes=16e9)
TRUTH = {
    "matmul_ceiling": 0.7, "matmul_size0": 2000.0, "attention_ceiling": 0.1, "attention_size0": 90.0,
    "unfused_touches": 5.0, "update_passes": 3.0,
}  # fmt: skip


def _kinds() -> list[Measured]:
    """One of each kind, as `measure` makes them, with times of no machine."""
    square = [(("m", n), ("n", n), ("k", n)) for n in (128, 256, 512, 1024)]
    products = [
        Measured(kind="gemm", op="jax matmul", dtype=t, sizes=s, seconds=1.0, work=2.0 * s[0][1] ** 3)
        for t in ("fp32", "bf16")
        for s in square
    ]
    heads = (("heads", 4), ("headdim", 64))
    layers = [
        Measured(kind="gemm", op=LINEAR, dtype="fp32", sizes=s, seconds=1.0, work=6.0 * s[0][1] ** 3) for s in square
    ]
    scores = [
        Measured(
            kind="attention", op=op, dtype="fp32", sizes=(("batch", 2), ("seq", n), *heads), seconds=1.0, plain=True
        )
        for n in (128, 256, 512, 1024)
        for op in ("plain fwd causal", "plain fwd+bwd causal")
    ]
    moved = [
        Measured(
            kind="elementwise",
            op=f"{op} forward and backward",
            dtype="fp32",
            sizes=(("rows", 512), ("width", 1024)),
            seconds=1.0,
            plain=True,
        )
        for op in ("rms_norm", "swiglu", "gelu", "cross_entropy")
    ]
    update = Measured(kind="optimizer", op="adam", dtype="fp32", sizes=(("parameters", 2**22),), seconds=1.0)
    return [*products, *layers, *scores, *moved, update]


def _direct() -> list[Measured]:
    calls = [Measured(kind="overhead", op=op, seconds=s) for op, s in (("call", 3e-4), ("kernel", 2e-6))]
    return [*calls, Measured(kind="hbm", op="jax triad", dtype="fp32", seconds=0.01, work=0.01 * 10e9)]


def _of_a_machine() -> list[Measured]:
    """Measurements of a machine whose constants are `TRUTH`, relative to peaks that `fit_node` would give it."""
    best = {"fp32": 100e9, "bf16": 50e9}
    seen = _kinds()
    rough = [dataclasses.replace(m, seconds=m.work / best[m.dtype]) if m.kind == "gemm" else m for m in seen]
    cluster, _ = fit_node([*_direct(), *rough], NODE)
    stack = dataclasses.replace(cluster.stack, **TRUTH)
    made = []
    for each in seen:
        one = observation(each)
        assert one is not None
        made.append(dataclasses.replace(each, seconds=one(cluster, stack)))
    return [*_direct(), *made]


def test_the_fit_finds_the_machine_that_made_the_times():
    cluster, log_errors = fit_node(_of_a_machine(), NODE)
    stack, chip = cluster.stack, cluster.accelerator
    assert np.abs(log_errors).max() < 0.05
    sizes = [stack.matmul_size0 * larger(chip.peak_32bit_flop_per_s), TRUTH["matmul_size0"] * larger(100e9 / HEADROOM)]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.1)  # of these units: their peak is the measurement's own
    assert stack.unfused_touches == pytest.approx(TRUTH["unfused_touches"], rel=0.05)
    assert stack.update_passes == pytest.approx(TRUTH["update_passes"], rel=0.05)
    rate = TRUTH["matmul_ceiling"] * 100e9 / HEADROOM
    assert stack.matmul_ceiling * chip.peak_32bit_flop_per_s == pytest.approx(rate, rel=0.03)
    assert stack.step_s == 3e-4
    assert stack.kernel_s == 2e-6


def test_collectives_are_fitted_with_their_laws():
    """Times of the laws themselves, of other constants, come back within a few per cent."""
    own = _of_a_machine()
    cluster, _ = fit_node(own, NODE)
    truth = dataclasses.replace(cluster.stack, link_ceiling=0.6, collective_s=5e-5)
    tier = dataclasses.replace(cluster.tiers[0], bandwidth_bytes_per_s=4e9, latency_s=2e-5)
    real = dataclasses.replace(cluster, tiers=(tier,))
    sent = [
        CollectiveRow(op=op, payload_bytes=size, ranks=2, time_s=1.0)
        for op in ("all_reduce", "all_gather", "all_to_all", "neighbour")
        for size in (4e3, 256e3, 16e6)
    ]
    names = {"all_to_all": "alltoall", "neighbour": "sendrecv"}
    calls = [
        Measured(kind="collective", op=names.get(r.op, r.op), seconds=s, work=r.payload_bytes, ranks=2)
        for r, s in zip(sent, times_s(sent, real, truth), strict=True)
    ]
    found, log_errors = fit_node([*own, *calls], NODE)
    assert np.median(np.abs(log_errors[-len(calls) :])) < 0.05
    assert found.tiers[0].size == 2
    assert collectives.COLLECTIVES["all_reduce"][found.stack.all_reduce]


def test_a_known_chip_keeps_its_data_sheet():
    node = Node(kind="NVIDIA H100 80GB HBM3", platform="gpu", devices=8, nodes=1, memory_bytes=60e9)
    cluster, _ = fit_node(_of_a_machine(), node)
    known = load_cluster("h100")
    assert cluster.accelerator == dataclasses.replace(known.accelerator, **_floats(cluster))
    assert [tier.name for tier in cluster.tiers] == [known.tiers[0].name]
    assert cluster.stack.software == "xla"
    assert cluster.stack.hide_data > 0  # which a node does not show: as shipped


def _floats(cluster) -> dict[str, float]:
    chip = cluster.accelerator
    return {f.name: v for f in dataclasses.fields(chip) if isinstance(v := getattr(chip, f.name), float)}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"), ("TPU v5 lite", "tpu-v5e"), ("TPU v6 lite", "tpu-v6e"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)  # fmt: skip
def test_names_of_drivers_are_known(kind, name):
    node = Node(kind=kind, platform="gpu", devices=4, nodes=1, memory_bytes=60e9)
    assert fit_node(_of_a_machine(), node)[0].accelerator.name == name


def test_the_table_has_the_columns_of_the_published_one():
    rows = as_rows(_of_a_machine(), "processor", "2 devices", "2026-01-01")
    if PUBLISHED.exists():
        assert ",".join(COLUMNS) == PUBLISHED.read_text().splitlines()[0]
    assert {len(row) for row in rows} == {len(COLUMNS)}
    cells = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    assert all(float(cell["value"]) > 0 for cell in cells)
    product = next(cell for cell in cells if cell["kind"] == "gemm")
    assert product["unit"] == "TFLOP/s"
    assert {cell["op"] for cell in cells if cell["kind"] == "gemm"} == {"jax matmul", LINEAR}
    assert product["shape_or_bytes"] == "m128 n128 k128"


def test_the_table_of_a_known_chip_is_read_as_the_published_one_is():
    sizes = (("m", 8192), ("n", 8192), ("k", 8192))
    product = Measured(kind="gemm", op="jax matmul", dtype="bf16", sizes=sizes, seconds=1.7e-3, work=2.0 * 8192**3)
    rows = as_rows([product], "H100-80GB-SXM", "1 node", "2026-01-01")
    (kernel,) = kernels([dict(zip(COLUMNS, rows[0], strict=True))])
    assert kernel.log_share == pytest.approx(np.log(2.0 * 8192**3 / 1.7e-3 / 989.4e12), abs=1e-3)


def test_bus_bandwidth_is_that_of_nccl_tests():
    row = Measured(kind="collective", op="all_reduce", seconds=1e-3, work=8e6, ranks=8)
    assert row.bus_bytes_per_s == pytest.approx(2 * 7 / 8 * 8e9)
    assert dataclasses.replace(row, op="sendrecv").bus_bytes_per_s == pytest.approx(8e9)


def test_the_cluster_file_reads_back_as_it_was(tmp_path):
    cluster, _ = fit_node(_of_a_machine(), NODE)
    answer = Answer(node=NODE, measured=(), cluster=cluster, error=0.0, load=0.0, writes=True)
    write(answer, str(tmp_path / "node.toml"), str(tmp_path / "node.csv"))
    read = load_cluster(tmp_path / "node.toml")
    assert dataclasses.replace(read, prices=None) == cluster
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node.csv", "node.toml"]
    plan = Plan(data=2, precision="fp32", attention="unfused", overlap_data=False, zero_stage=0)
    work = decoder(layers=2, hidden=256, heads=4, ffn=1024, vocabulary=1024, sequence=128, batch=4)
    assert evaluate(work, read, plan).step_s == pytest.approx(evaluate(work, cluster, plan).step_s)


@pytest.mark.parametrize(
    "loop",
    [
        programs.matmul(8, 16, 4, "float32"), programs.attention((1, 8, 2, 4), "float32", False, "plain"),
        programs.attention((1, 8, 2, 4), "float32", True, "plain"), programs.norm(8, 4, "float32"),
        programs.gate(8, 4, "float32"),
        programs.linear(8, 16, 4, "float32"), programs.gelu(8, 4, "float32"),
        programs.loss(8, 16), programs.adam(16), programs.kernels(3),
        programs.triad(16, "float32"), programs.attention((1, 8, 2, 4), "float32", True, "xla"),
    ],
)  # fmt: skip
def test_a_program_can_go_on_with_what_it_returns(loop):
    """Shapes and types stay, and so do the sizes of the numbers: no overflow in many rounds."""
    import jax
    import jax.numpy as jnp

    random = np.random.default_rng(0)

    def of(shapes):
        return tuple(jnp.asarray(loop.deviation * random.standard_normal(s), loop.dtype) for s in shapes)

    state, constants = of(loop.state), of(loop.constants)
    after = jax.jit(lambda s: jax.lax.fori_loop(0, 20, lambda _, held: loop.body(held, constants), s))(state)
    assert [x.shape for x in after] == [x.shape for x in state]
    assert all(bool(jnp.isfinite(x).all()) for x in after)


def test_attention_written_out_is_that_of_jax():
    import jax
    import jax.numpy as jnp

    q, k, v = (jnp.asarray(x) for x in np.random.default_rng(0).standard_normal((3, 2, 16, 4, 8)).astype(np.float32))
    np.testing.assert_allclose(
        programs.attend(q, k, v, "plain"), jax.nn.dot_product_attention(q, k, v, is_causal=True), atol=1e-5
    )


class _Fake(Devices):
    """Devices of which every program takes the same time: the schedule without the machine."""

    def __init__(self, devices: int, round_s: float) -> None:
        self.node = Node(kind="processor", platform="cpu", devices=devices, nodes=1, memory_bytes=16e9)
        self.round_s, self.loops = round_s, []

    def seconds(self, loop: Loop, share_s: float) -> float:
        self.loops.append(loop)
        time.sleep(share_s)
        return self.round_s

    def call_s(self, arrays: int, calls: int = 50) -> float:
        return 1e-4


def test_little_time_measures_what_the_constants_need_and_more_time_the_rest():
    little = measure(_Fake(2, 1e-3), 1e-3, lambda _: None)
    assert {each.kind for each in little} == {
        "overhead", "gemm", "hbm", "elementwise", "optimizer", "attention", "collective"
    }  # fmt: skip
    assert {each.dtype for each in little if each.kind == "gemm"} == {"fp32", "bf16"}
    more = measure(_Fake(2, 1e-3), 2.0, lambda _: None)
    assert len(more) > len(little)
    assert {each.op for each in more} > {"all_gather", "reduce_scatter", "alltoall", "sendrecv"}


def test_one_device_measures_no_collectives():
    assert "collective" not in {each.kind for each in measure(_Fake(1, 1e-3), 0.5, lambda _: None)}


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "optimize.cli", "measure", *words]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}


@pytest.mark.slow
def test_a_real_run_of_a_second(tmp_path):
    out, table = tmp_path / "node.toml", tmp_path / "node.csv"
    words = ("--seconds", "1", "--out", str(out), "--table", str(table), "--json")
    done = subprocess.run(_command(*words), capture_output=True, text=True, env=_environment(), timeout=300, check=True)
    answer = json.loads(done.stdout)
    assert answer["status"] == "ok"
    assert answer["devices"] == 2
    cluster = load_cluster(out)
    assert cluster.accelerators == 2
    assert cluster.accelerator.peak_32bit_flop_per_s > 1e8
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == answer["measurements"]
    assert {row["kind"] for row in rows} >= {"gemm", "attention", "hbm", "collective", "overhead"}


@pytest.mark.slow
def test_an_interrupted_run_leaves_nothing(tmp_path):
    words = ("--seconds", "600", "--out", str(tmp_path / "node.toml"), "--table", str(tmp_path / "node.csv"))
    running = subprocess.Popen(_command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment())
    time.sleep(8.0)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=120)
    assert running.returncode == 130
    assert out == b""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("--seconds", "0"), ("--seconds", "-3"), ("--processes", "2"), ("--process", "1"),
        ("--out", "/nowhere/node.toml"), ("--table", "."),
    ],
)  # fmt: skip
def test_wrong_words_are_one_line_and_status_2(words, capsys):
    from optimize.cli.run import run

    assert run(["measure", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_files_are_whole_or_not_there(tmp_path):
    """A table that cannot be written leaves no cluster file either."""
    cluster, _ = fit_node(_of_a_machine(), NODE)
    answer = Answer(node=NODE, measured=(), cluster=cluster, error=0.0, load=None, writes=True)
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write(answer, str(tmp_path / "taken"), None)
    assert [path.name for path in Path(tmp_path).iterdir()] == ["taken"]
