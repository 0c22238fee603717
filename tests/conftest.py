"""One hypothesis profile, and small inputs by hand. Nothing here changes JAX's global configuration."""

import pytest
from hypothesis import settings

from costmodel.formulas.cost import as_floats
from costmodel.inputs.cluster import Accelerator, Cluster, Tier
from costmodel.inputs.stack import Stack
from costmodel.inputs.workload import Workload
from costmodel.models.decoder import decoder

settings.register_profile("equipoise", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("equipoise")


@pytest.fixture(scope="session")
def small_decoder() -> Workload:
    """A dense decoder whose sizes divide by many plans: 8 layers, 16 heads, 64 sequences."""
    return decoder(
        name="small",
        layers=8,
        hidden=1024,
        heads=16,
        key_value_heads=8,
        ffn=4096,
        vocabulary=32768,
        sequence=2048,
        batch=64,
        gated=True,
    )


def _cluster(*domains: int) -> Cluster:
    """A100-like accelerators behind nested domains of the given sizes; each tier is slower than the one inside."""
    accelerator = Accelerator(
        name="small",
        peak_32bit_flop_per_s=156e12,
        peak_16bit_flop_per_s=312e12,
        peak_8bit_flop_per_s=312e12,
        peak_4bit_flop_per_s=312e12,
        hbm_bytes=81920 * 2**20,
        hbm_bytes_per_s=2.0e12,
    )
    tiers = tuple(
        Tier(
            name=f"tier{i}",
            size=size,
            usable_size=size,
            bandwidth_bytes_per_s=300e9 / 8**i,
            latency_s=2e-6 * (i + 1),
        )
        for i, size in enumerate(domains)
    )
    return Cluster(name="small", accelerator=accelerator, tiers=tiers, accelerators=domains[-1], stack=Stack())


@pytest.fixture(scope="session")
def two_tiers() -> Cluster:
    """64 accelerators in domains of 8."""
    return as_floats(_cluster(8, 64))


@pytest.fixture(scope="session")
def three_tiers() -> Cluster:
    """512 accelerators in domains of 8 in domains of 64."""
    return as_floats(_cluster(8, 64, 512))
