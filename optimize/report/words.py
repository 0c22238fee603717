"""Names of terms as people read them, the same on screens and in figures. JSON keeps its own."""

import re

from costmodel.inputs import Workload
from optimize import units

_TIME = {"host": "processor overhead"}
_LIMITS = {"issuing kernels": "issuing of kernels", "step": "work once a step", "microbatches": "work each microbatch"}
_MEMORY = {
    "optimizer": "optimizer states",
    "gathered": "gathered weights",
    "outside": "driver, workspace",
    "working": "layer in backward",
    "late": "gradients",
    "update": "optimizer's update",
}


def job_words(workload: Workload) -> str:
    """A model and its step; what has no sequences has samples."""
    size = f"sequences of {workload.sequence:,} tokens" if workload.sequence > 1 else "samples"
    return f"{workload.name}: {workload.batch:,} {size}"


def term_words(name: str) -> str:
    """A term of the step's time."""
    return _TIME.get(name, name)


def reason_words(reason: str) -> str:
    """What a plan's time goes to, its terms in words."""
    return re.sub(rf"\b({'|'.join(_TIME)})\b", lambda found: term_words(found[0]), reason)


def limit_words(name: str) -> str:
    """What limits a term."""
    return _LIMITS.get(name, name)


def memory_words(name: str) -> str:
    """A term of a stage's memory."""
    return _MEMORY.get(name, name)


def constant_amount(name: str, value: float) -> str:
    """The value of a constant of the Stack with its unit."""
    if name.endswith("_s"):
        return units.scaled(value, units.SECONDS)
    shared = name.endswith("_ceiling") or name.startswith("hide_")
    return units.percent(value) if shared else units.significant(value)
