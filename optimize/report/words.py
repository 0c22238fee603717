"""Names of terms as people read them, the same on screens and in figures. JSON keeps its own."""

_TIME = {"host": "processor overhead"}
_LIMITS = {"issuing kernels": "issuing of kernels", "step": "work once a step", "microbatches": "work each microbatch"}
_MEMORY = {
    "optimizer": "optimizer states",
    "gathered": "gathered weights",
    "outside": "driver, workspace",
    "recompute": "recomputed layer",
    "update": "optimizer's update",
}


def term_words(name: str) -> str:
    """A term of the step's time."""
    return _TIME.get(name, name)


def limit_words(name: str) -> str:
    """What limits a term."""
    return _LIMITS.get(name, name)


def memory_words(name: str) -> str:
    """A term of a stage's memory."""
    return _MEMORY.get(name, name)
