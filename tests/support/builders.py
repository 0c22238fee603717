"""Small workloads and clusters by hand, for tests that read no files."""

from costmodel.inputs.cluster import Cluster
from costmodel.inputs.hardware import Accelerator, Tier
from costmodel.inputs.stack import Stack
from costmodel.inputs.workload import Workload
from costmodel.models.decoder import decoder
from costmodel.models.moe import Latent, moe_decoder


def small_decoder(layers: int = 4, batch: int = 64, sequence: int = 128, **other) -> Workload:
    sizes = {"hidden": 256, "heads": 8, "key_value_heads": 4, "ffn": 1024, "vocabulary": 1000, "gated": True}
    return decoder(**(sizes | {"layers": layers, "batch": batch, "sequence": sequence} | other))


def small_moe(**other) -> Workload:
    """Latent attention, one dense layer, then experts beside a shared one: every structure of the family."""
    latent = Latent(query_rank=48, key_value_rank=32, nope_size=16, rope_size=8, value_size=16)
    sizes = {"layers": 5, "hidden": 128, "heads": 8, "vocabulary": 1000, "sequence": 128, "batch": 256}
    chosen = {"experts": 16, "top_k": 4, "expert_ffn": 96, "ffn": 512, "dense_layers": 1, "shared_experts": 1}
    return moe_decoder(**(sizes | chosen | {"latent": latent, "expert_groups": 2} | other))


def accelerator(**other) -> Accelerator:
    """About an A100 80GB, in round numbers."""
    rates = {f"peak_{w}bit_flop_per_s": x for w, x in ((32, 150e12), (16, 300e12), (8, 600e12), (4, 1200e12))}
    types = ("fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")
    return Accelerator(
        name="round", types=types, **({**rates, "hbm_bytes": 80 * 2**30, "hbm_bytes_per_s": 2e12} | other)
    )


def cluster(accelerators: int = 64, domain: int = 8, tiers: int = 2, stack: Stack | None = None) -> Cluster:
    sizes = [domain, 8 * domain, max(accelerators, 64 * domain)][: tiers - 1] + [max(accelerators, 64 * domain)]
    nested = tuple(
        Tier(
            name=f"tier{i}",
            size=size,
            usable_size=size,
            bandwidth_bytes_per_s=3e11 / 8**i,
            latency_s=1e-6 * 3**i,
        )
        for i, size in enumerate(sizes)
    )
    return Cluster(
        name="round",
        accelerator=accelerator(),
        tiers=nested,
        accelerators=accelerators,
        stack=stack or Stack(),
    )
