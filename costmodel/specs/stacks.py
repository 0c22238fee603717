r"""The fitted constants that ship (data/stacks.toml), as a Stack for one accelerator, software and fabric.

A constant is $T(c + d_{die} + d_{family} + d_{software} + d_{fabric})$ with $T$ the exponential, or the logistic
function for those listed under `shares`. What was never measured has no deviation: it gets the shared value.
"""

import math
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import ALSO_KNOWN_AS, COMPILED, SOFTWARE
from costmodel.specs.checks import fail, nearest
from costmodel.specs.files import SpecError, show

LEVELS = ("die", "family", "stack", "fabric")
_FAMILIES = ("gaudi", "tpu", "trainium", "v100", "a100")  # one for all chips of the name
_ALIKE = {"h800": "h100"}  # one family under two names
_DIES = {"h200": "h100", "h100-96gb": "h100", "gb200": "b200", "gb300": "b300", "mi325x": "mi300x"}
_XLA_ONLY = ("tpu", "trainium")
_OLD = ("v100", "a100")


def family_of(accelerator: str) -> str:
    """The family whose constants an accelerator has, by its name in data/accelerators.toml."""
    name = next((family for family in _FAMILIES if accelerator.startswith(family)), accelerator)
    return _ALIKE.get(name, name)


def die_of(family: str) -> str:
    """The silicon of a family: the same chip with other memory, clock or board has the same kernels."""
    return _DIES.get(family, family)


def chosen_software(accelerator: str, asked: Any = None, where: str = "cluster") -> tuple[str, str]:
    """The class that was asked for, by its own name or a framework's, else the default of the accelerator; and why."""
    family = family_of(accelerator)
    if asked is None:
        return _default_software(family)
    if not isinstance(asked, str):
        fail(where, "software", asked, f"one of {', '.join(SOFTWARE)}")
    name = ALSO_KNOWN_AS.get(asked, asked)
    if name not in SOFTWARE:
        known = (*SOFTWARE, *ALSO_KNOWN_AS)
        raise SpecError(f"{where}: `software` is {show(asked)}, which is not known; {nearest(asked, known)}")
    if name != asked and name in COMPILED:
        name = compiled_for(family)
    if name == "megatron-2022" and family not in _OLD:
        allowed = ", ".join(other for other in SOFTWARE if other != name)
        fail(where, "software", asked, f"one of {allowed}: {accelerator} is newer than what Megatron-LM of 2022 ran on")
    return name, "asked for" if name == asked else f"what {asked} is"


def compiled_for(family: str) -> str:
    """The class of what XLA compiles, by the accelerator that it compiles for."""
    return "xla" if family in _XLA_ONLY else "xla-gpu"


def _default_software(family: str) -> tuple[str, str]:
    if family in _XLA_ONLY:
        return "xla", f"what runs on {family}"
    if family in _OLD:
        return "megatron-2022", f"the default for {family}, where it was measured"
    return "megatron-core", "the default"


def constant_group(accelerator: str, software: str, fabric: str | None = None) -> dict[str, str]:
    """Family, software and fabric of a stack; InfiniBand between domains where nothing else is said."""
    family = family_of(accelerator)
    usual = "ici" if family == "tpu" else "infiniband"
    return {"die": die_of(family), "family": family, "stack": software, "fabric": fabric or usual}


def stack_values(tables: Mapping[str, Any], group: Mapping[str, str]) -> dict[str, Any]:
    """Fields of the Stack of one group: its name, habits and memory, and its constants from the tables of the file."""
    habits = SOFTWARE[group["stack"]]
    spread = tables.get("memory", {})
    own = {"memory_log_sd": spread.get(group["stack"], spread["other"])} if spread else {}
    return {"software": group["stack"], "habits": habits, **dict(habits.memory), **own, **constants(tables, group)}


def constants(tables: Mapping[str, Any], group: Mapping[str, str]) -> dict[str, float]:
    """The fitted fields of the Stack for one group, from the tables of the file."""
    shares, fields = set(tables["shares"]), {}
    for name, value in tables["shared"].items():
        free = math.log(value / (1.0 - value)) if name in shares else math.log(value)
        free += sum(tables.get(level, {}).get(group[level], {}).get(name, 0.0) for level in LEVELS)
        fields[name] = 1.0 / (1.0 + math.exp(-free)) if name in shares else math.exp(free)
    return fields
