"""Software that XLA compiles: its class by the hardware, and what its partitioner does with gradients."""

import dataclasses
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from costmodel import load_cluster
from costmodel.inputs import NEVER_MEASURED, SOFTWARE
from costmodel.measured import Case, case, posterior
from costmodel.measured.fit.newcomers import OF_TODAY, with_newcomers
from tests.support.row_by_hand import bulk_rows, needs_bulk

H100 = {
    "hardware": "H100-80GB-SXM", "gpus": "64", "gpus_per_node": "8", "precision": "bf16", "seq": "4096",
    "vocab": "32000", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "32", "ffn_hidden": "11008",
    "gated_ffn": "1", "model": "7B", "params_B": "6.7", "global_batch_sequences": "256", "micro_batch": "1",
    "tp": "2", "dp": "32",
}  # fmt: skip
TPU = {"hardware": "TPU v5p", "gpus_per_node": ""}
STEP = """
import jax, jax.numpy as jnp, numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec
mesh = Mesh(numpy.array(jax.devices()), ("data",))
def layer(x, weights):
    first, second = (w.astype(jnp.bfloat16) for w in weights)
    return x + jax.nn.silu(x @ first) @ second, None
def loss(weights, x):
    return jnp.mean(jax.lax.scan(jax.checkpoint(layer), x, weights)[0].astype(jnp.float32) ** 2)
def step(weights, x):
    return jax.tree.map(lambda w, g: w - g, weights, jax.grad(loss)(weights, x))
at = lambda *axes: NamedSharding(mesh, PartitionSpec(*axes))
divided = (at(None, "data", None), at(None, None, "data"))
sizes = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((3, 64, 128), (3, 128, 64)))
jitted = jax.jit(step, in_shardings=(divided, at("data", None)), out_shardings=divided)
jitted.lower(sizes, jax.ShapeDtypeStruct((32, 64), jnp.bfloat16)).compile()
"""
"""Layers in a loop, weights in 32 bits and products in 16, both divided over four devices, as MaxText has them."""


def test_gradients_are_reduced_in_the_16_bits_of_their_products(tmp_path):
    flags = f"--xla_force_host_platform_device_count=4 --xla_dump_to={tmp_path} --xla_dump_hlo_pass_re=spmd.*"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    subprocess.run([sys.executable, "-c", STEP], env=environment, check=True, capture_output=True, timeout=120)
    (partitioned,) = tmp_path.glob("*after_spmd-partitioning*.txt")
    found = re.findall(r"= (\w+)\[\d+,\d+\]\S* (all-gather|all-reduce|reduce-scatter)\(", partitioned.read_text())
    assert {kind for _, kind in found} >= {"all-gather"}
    assert len(found) > 4
    assert {width for width, _ in found} == {"bf16"}
    assert SOFTWARE["xla-gpu"].gradient_dtype == "bf16"


@pytest.mark.parametrize("words", ["MaxText", "JAX-Toolbox Pax", "Levanter", "PyTorch/XLA"])
def test_what_xla_compiles_is_of_its_hardware(words):
    on_gpu, on_tpu = (case(H100 | {"source": words} | changes) for changes in ({}, TPU))
    assert isinstance(on_gpu, Case)
    assert isinstance(on_tpu, Case)
    assert (on_gpu.stack, on_tpu.stack) == ("xla-gpu", "xla")
    told = "xla-gpu: no run of its software was measured"
    assert (told in on_gpu.assumed, told in on_tpu.assumed) == (True, False)
    assert not on_gpu.plan.overlap_tensor
    assert on_tpu.plan.overlap_tensor


def test_a_framework_names_the_class_of_its_hardware():
    assert load_cluster("h100", software="maxtext").stack.software == "xla-gpu"
    assert load_cluster("tpu-v5p", software="maxtext").stack.software == "xla"


def test_a_newcomers_deviations_are_the_mean_of_those_of_today():
    known = posterior.shipped()
    own = {key: z for key, z in zip(known.keys, known.z, strict=True) if key[1] == "stack"}
    for name, level, software in list(own):
        if software == "xla-gpu":
            others = [own.get((name, level, other), 0.0) for other in OF_TODAY]
            assert own[name, level, software] == pytest.approx(np.mean(others), abs=1e-5)
    assert {"megatron-2022", "xla", "xla-gpu"} & set(OF_TODAY) == set()
    at = [known.keys.index(("matmul_ceiling", "stack", name)) for name in ("xla-gpu", *OF_TODAY)]
    variances = (known.factor[at] ** 2).sum(axis=1)
    assert variances[0] > 1.0 + 1.0 / len(OF_TODAY) - 1e-3
    assert variances[0] > max(variances[1:])
    assert np.array_equal(known.factor, np.tril(known.factor))


def test_newcomers_are_found_again():
    known = posterior.shipped()
    kept = [i for i, key in enumerate(known.keys) if key[2] != "xla-gpu"]
    old = dataclasses.replace(
        known, keys=tuple(known.keys[i] for i in kept), z=known.z[kept], factor=known.factor[np.ix_(kept, kept)]
    )
    assert with_newcomers(old, set(SOFTWARE)) is old
    again = with_newcomers(old, SOFTWARE.keys() - set(NEVER_MEASURED))
    assert again.keys == known.keys
    assert again.z == pytest.approx(known.z, abs=1e-5)
    assert again.factor == pytest.approx(known.factor, abs=2e-3)


def test_software_that_was_never_measured_has_a_wider_interval():
    named, never = (case(H100 | {"source": words}) for words in ("Megatron-Core", "MaxText"))
    assert isinstance(named, Case)
    assert isinstance(never, Case)
    known, unknown = posterior.log_sd([named, never])
    assert unknown > known


@needs_bulk
def test_every_other_class_was_measured():
    found = [case(row) for row in bulk_rows("calibration")]
    assert {each.stack for each in found if isinstance(each, Case)} == SOFTWARE.keys() - set(NEVER_MEASURED)


def test_newcomers_stand_for_none_of_each_other():
    known, left = posterior.shipped(), {"deepspeed", *NEVER_MEASURED}
    kept = [i for i, key in enumerate(known.keys) if key[2] not in left]
    seen = dataclasses.replace(
        known, keys=tuple(known.keys[i] for i in kept), z=known.z[kept], factor=known.factor[np.ix_(kept, kept)]
    )
    again = with_newcomers(seen, SOFTWARE.keys() - left)
    z = dict(zip(again.keys, again.z, strict=True))
    others = [z["matmul_ceiling", "stack", name] for name in OF_TODAY if name not in left]
    assert len(others) == len(OF_TODAY) - 1
    assert [z["matmul_ceiling", "stack", name] for name in left] == pytest.approx([np.mean(others)] * 2)
