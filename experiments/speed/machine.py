"""What the machine can do: operations of each kind per second on one core, through XLA, on data in its L2 cache.

Each rate is that of a program that does nearly nothing else: independent chains of one operation, enough of them to
hide its latency. The best of several shapes counts, and of several operations of one kind the fastest, so the limit is
strict: adds and multiplies alternate and the machine fuses them, where a formula often cannot.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from costmodel.evaluators import COMPILER_OPTIONS
from experiments.speed.clock import best_s

LENGTH = 16_384  # float32: 64 KiB for each of two inputs and the output
CHAINS = 8  # independent of one another
FEW_LINKS = {"square_root": 16, "exp_log": 16}  # operations in each chain; slow ones need few

Step = Callable[[Any, Any, int], Any]


def _steps() -> dict[str, dict[str, Step]]:
    """Kind to XLA operation to one link of a chain. Additions keep chains from being folded; they run beside."""
    from jax import numpy as jnp

    return {
        "add_multiply": {"add": lambda a, y, i: a * y if i % 2 else a + y},
        "divide": {"divide": lambda a, y, i: y / (a + y)},
        "max_min": {"maximum": lambda a, y, i: jnp.maximum(a, y) if i % 2 else jnp.minimum(a, 2 - y)},
        "square_root": {"sqrt": lambda a, y, i: jnp.sqrt(a + y)},
        "exp_log": {
            "exponential": lambda a, y, i: jnp.exp(-a),
            "log": lambda a, y, i: jnp.log(a + 2),
        },
    }


def rates_per_s(seconds: float, links: Sequence[int]) -> dict[str, float]:
    """Operations of each kind per second, on the core that this process is pinned to, in chains of `links`."""
    return {
        kind: max(
            _rate(step, name, length, seconds)
            for name, step in steps.items()
            for length in ((FEW_LINKS[kind],) if kind in FEW_LINKS else links)
        )
        for kind, steps in _steps().items()
    }


def _rate(step: Step, name: str, links: int, seconds: float) -> float:
    import jax

    def program(x: Any, y: Any) -> Any:
        values = [x + np.float32(0.001 * chain) for chain in range(CHAINS)]
        for link in range(links):
            values = [step(value, y, link) for value in values]
        result = values[0]
        for value in values[1:]:
            result = result + value
        return result

    x = jax.numpy.linspace(0.5, 1.5, LENGTH, dtype=np.float32)
    y = jax.numpy.linspace(0.95, 1.05, LENGTH, dtype=np.float32)
    compiled = jax.jit(program).lower(x, y).compile(compiler_options={**COMPILER_OPTIONS["value"]})
    least = CHAINS * links // (2 if name in ("add", "maximum") else 1)
    if (compiled.as_text() or "").count(f" {name}(") < least:
        raise RuntimeError(f"the compiler folded the chain of `{name}`, so its rate would be too high")
    return CHAINS * links * LENGTH / best_s(lambda: jax.block_until_ready(compiled(x, y)), seconds)


def limit_s(operations: dict[str, float], rates: dict[str, float]) -> float:
    """Seconds for one plan if every operation ran at its own rate, one kind after the other."""
    return sum(count / rates[kind] for kind, count in operations.items())
