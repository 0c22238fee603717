"""What lies in the host's memory, or goes there: meanings and the phrases that say them (grammar.py)."""

from collections.abc import Mapping
from types import MappingProxyType

_HOST = "cpu|host|grace|ram|dram|lpddr*|nvme|ssd|system_memory|main_memory"
_MOVED = "sent|moved|kept|parked|stored|spilled|swapped|live|streamed|copied"

OFFLOADS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "host_optimizer": (
        "offload* & optimizer|optim",
        f"optimizer state? is? in|on|to the? grace? {_HOST}",
        "cpu|host adam*|optimizer",
        "adam*|optimizer on|in|by the? cpu|grace|host",
        "optimizer state? and fp32? activation*|checkpoint*|param*|weight*|master*|gradient* checkpoint*? to|on|in the?"
        f" {_HOST}",
        f"optimizer & {_MOVED} to|in|into|on the? {_HOST}",
        "deep_speed? cpu adam*",
        "adam*|optimizer step|update on|by|in the? cpu|host",
        "zero stage? 2|3? offload*|infinity",
        "z2|z3 offload*",
    ),
    "offload_any": ("cpu|host offload*", "offload* to|into? cpu|host",  # of what is not said
        "zero stage? 2|3? plus|with|and offload*"),
    "offloaded_activations": (
        "offload* of|for|all|the? activation*",
        "activation* checkpoint*? cpu|host|memory? offload*",
        "full|selective? activation|gradient|grad|act? checkpointing|ckpt with cpu|host offload*!",  # of nothing else
        "activation* is|are? in|on|to|offloaded cpu|host",
        "activation* is|are? offloaded",
        "grad|gradient|activation checkpoint*|ckpt is|are? offloaded",
        f"activation* & {_MOVED} to|in|into|on the? {_HOST}",
        "activation* checkpoint*? is|are? to|in|on the? cpu|host|ram|nvme",
        "checkpoint|ckpt cpu|host? offload* to? cpu|host|ram",
        "offload* & layer|block? input*|carry|carries",
        "offload* of|the? of|the? checkpoint|ckpt",
    ),
    "offloaded_weights": (
        "offload* & param*|weight*|model_states",
        "param*|weight* is|are? in|on|to the? cpu|host|nvme|ssd",
        f"param*|weight* & {_MOVED} to|in|into|on the? {_HOST}",
        "param*|weight* & state|optimizer is|are? in|on|to the? cpu|host|nvme|ssd",
    ),
})  # fmt: skip
"""Yes or no, as `meanings.FLAGS`."""
