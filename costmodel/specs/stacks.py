r"""The fitted constants that ship (data/stacks.toml), as fields of a Stack for one accelerator and software class.

A constant is $T(c + d_{family} + d_{stack} + d_{fabric})$ with $T$ the exponential, or the logistic function for those
listed under `shares`. A chip, a class or a fabric that was never measured has no deviation: it gets the shared value.
"""

import math
from collections.abc import Mapping
from typing import Any

LEVELS = ("family", "stack", "fabric")
_DEFAULT_STACK = {"tpu": "xla", "trainium": "xla"}
_FAMILIES = ("gaudi", "tpu", "trainium", "v100", "a100")  # one for all chips of the name
_DIES = {"h800": "h100"}


def family_of(accelerator: str) -> str:
    """The family whose constants an accelerator has, by its name in data/accelerators.toml."""
    name = next((family for family in _FAMILIES if accelerator.startswith(family)), accelerator)
    return _DIES.get(name, name)


def default_group(accelerator: str) -> dict[str, str]:
    """Family, software class and fabric of a cluster that says nothing else: today's software, InfiniBand."""
    family = family_of(accelerator)
    stack = _DEFAULT_STACK.get(family, "megatron_core")
    return {"family": family, "stack": stack, "fabric": "ici" if family == "tpu" else "infiniband"}


def constants(tables: Mapping[str, Any], group: Mapping[str, str]) -> dict[str, float]:
    """The fields of the Stack for one group, from the tables of the file."""
    shares, found = set(tables["shares"]), {}
    for name, value in tables["shared"].items():
        free = math.log(value / (1.0 - value)) if name in shares else math.log(value)
        free += sum(tables[level].get(group[level], {}).get(name, 0.0) for level in LEVELS)
        found[name] = 1.0 / (1.0 + math.exp(-free)) if name in shares else math.exp(free)
    return found
