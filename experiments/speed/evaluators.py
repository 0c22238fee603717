"""Plans a second on one core: the same formulas on Python floats, NumPy and JAX, flat and as a grid."""

import dataclasses
import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel import Exact
from costmodel.evaluators import compiled
from costmodel.formulas import cost
from costmodel.inputs import Cluster, PlanPoint, Workload, embed
from experiments.speed.clock import best_s, best_sum_s
from experiments.speed.operations import operations
from experiments.speed.subject import LAYOUTS, Pool, cast, grid, random_plans, subject

NUMPY_BATCH = 8_192  # temporaries of 32 KiB stay in the cache and cost no page faults

CANDIDATES: dict[str, dict[str, bool | str]] = {
    "default": {},
    "512-bit": {"xla_cpu_prefer_vector_width": "512"},
    "512-bit, no fusion": {"xla_cpu_prefer_vector_width": "512", "xla_disable_hlo_passes": "fusion"},
    "no emitters, 512-bit": {"xla_cpu_prefer_vector_width": "512", "xla_cpu_use_fusion_emitters": False},
}
"""Compiler options that are compared. Fast-math variants (another 10 to 20 %) give up NaN and infinity."""


Effort = Mapping[str, Any]
"""How long to measure: `seconds` for each figure, `sizes` and `gradient_sizes` of batches, `candidates` of compiler
options, `roles` whose compilation is timed, `by_hardware`: whether gradients by both are, whose program takes half a
minute to compile, `links`: lengths of the chains that measure the machine."""


def python_per_s(workload: Workload, cluster: Cluster, points: Sequence[PlanPoint], seconds: float) -> float:
    """Plans a second of a loop over them on Python floats, each timed alone: busy cores interrupt few of them."""
    runs = [functools.partial(cost, workload, cluster, point, Exact(math)) for point in points]
    return len(runs) / best_sum_s(runs, seconds)


class Bench:
    """Arguments in each library's form, cast once."""

    def __init__(self, effort: Effort, plans: int, seed: int) -> None:
        import jax

        self.effort = effort
        self.pool = Pool(plans, seed)
        self.floats = subject()
        workload, cluster = self.floats
        self.numbers = cast(compiled.anonymous(workload)), cast(compiled.anonymous(cluster))
        self.on_device = jax.device_put(self.numbers)

    def numpy_per_s(self, size: int) -> float:
        """Plans a second of NumPy, in batches whose temporaries fit the cache."""
        workload, cluster = self.numbers
        pieces = list(self.pool.batches(size, NUMPY_BATCH))
        kept: list[Any] = [None] * len(pieces)  # as a search does; else the heap shrinks and grows with every batch

        def run(index: int) -> None:
            kept[index] = cost(workload, cluster, pieces[index], Exact(np))

        return size / best_sum_s(
            [functools.partial(run, index) for index in range(len(pieces))], self.effort["seconds"]
        )

    def compiled_per_s(self, evaluator: Any, size: int, batch: int) -> float:
        """Results of a compiled evaluator, its inputs in JAX's arrays, called from Python batch by batch."""
        import jax

        workload, cluster = self.on_device
        batch = min(size, batch)
        pieces = [jax.device_put(self.pool.batch(batch)) for _ in range(size // batch)]

        def run(piece: PlanPoint) -> None:
            jax.block_until_ready(evaluator(workload, cluster, piece))

        runs = [functools.partial(run, piece) for piece in pieces]
        return len(runs) * batch / best_sum_s(runs, self.effort["seconds"])

    def by_hardware_per_s(self) -> float:
        """Gradients by plan and hardware, every plan with its own."""
        import jax

        batch = compiled.GRADIENT_BATCH
        workload, cluster = self.on_device
        cluster = jax.tree.map(lambda leaf: jax.numpy.full(batch, leaf), cluster)
        points, evaluator = jax.device_put(self.pool.batch(batch)), compiled.gradient(hardware=True)
        return batch / best_s(
            lambda: jax.block_until_ready(evaluator(workload, cluster, points)), self.effort["seconds"]
        )

    def batch_cost_per_s(self, size: int) -> float:
        """`compiled.batch_cost` from NumPy arrays to NumPy arrays."""
        points = self.pool.batch(size)
        return size / best_s(lambda: compiled.batch_cost(*self.floats, points), self.effort["seconds"])

    def throughput(self) -> dict[str, Any]:
        """Every library at every batch size."""
        value, gradient = compiled.value(), compiled.gradient()
        sizes, gradient_sizes = self.effort["sizes"], self.effort["gradient_sizes"]
        return {
            "python_per_s": python_per_s(*self.floats, self.pool.points, 3 * self.effort["seconds"]),
            "numpy_per_s": {size: self.numpy_per_s(size) for size in sizes},
            "jax_per_s": {size: self.compiled_per_s(value, size, compiled.VALUE_BATCH) for size in sizes},
            "gradient_per_s": {
                size: self.compiled_per_s(gradient, size, compiled.GRADIENT_BATCH) for size in gradient_sizes
            },
            "by_hardware_per_s": self.by_hardware_per_s() if self.effort["by_hardware"] else None,
            "batch_cost_per_s": {size: self.batch_cost_per_s(size) for size in sizes[-1:]},
            "fields": self.pool.rows.shape[1],
            "value_batch": compiled.VALUE_BATCH,
            "gradient_batch": compiled.GRADIENT_BATCH,
        }

    def compile_times(self) -> list[dict[str, Any]]:
        """Seconds to trace, lower and compile, and the speed of the result, by role and options."""
        programs = {
            "value": (compiled.value_program(), compiled.VALUE_BATCH, False),
            "gradient by plan": (compiled.gradient_program(), compiled.GRADIENT_BATCH, False),
            "gradient by plan and hardware": (
                compiled.gradient_program(hardware=True),
                compiled.GRADIENT_BATCH // 4,
                True,
            ),
        }
        rows = []
        for role in self.effort["roles"]:
            function, batch, hardware = programs[role]
            chosen = compiled.COMPILER_OPTIONS[role.split()[0]]
            for name in self.effort["candidates"]:
                options = CANDIDATES[name]
                if options == chosen or not hardware:  # which compiles for a minute
                    measured = self._compile(function, options, batch, hardware)
                    rows.append({"role": role, "options": name, "chosen": options == chosen, **measured})
        return rows

    def _compile(self, function: Any, options: dict[str, Any], batch: int, hardware: bool) -> dict[str, Any]:
        import jax

        workload, cluster = self.on_device
        if hardware:
            cluster = jax.tree.map(lambda leaf: jax.numpy.full(batch, leaf), cluster)
        points = jax.device_put(self.pool.batch(batch))
        started = time.perf_counter()
        # a new function object, or the trace of the previous candidate would be found again
        lowered = jax.jit(lambda *arguments: function(*arguments)).lower(workload, cluster, points)
        traced = time.perf_counter()
        program = lowered.compile(compiler_options=options)
        finished = time.perf_counter()
        run_s = best_s(lambda: jax.block_until_ready(program(workload, cluster, points)), self.effort["seconds"])
        return {
            "trace_s": traced - started,
            "compile_s": finished - traced,
            "per_s": batch / run_s,
            "batch": batch,
            "xla_options": options,
        }

    def operation_counts(self) -> dict[str, dict[str, float]]:
        """Operations per plan after common sub-expressions are removed."""
        points = self.pool.batch(8)
        return {
            "value": operations(compiled.value_program(), *self.numbers, points),
            "gradient by plan": operations(compiled.gradient_program(), *self.numbers, points),
            "grid": operations(compiled.value_program(), *self.numbers, self.grid("axes")),
        }

    def grid(self, layout: str) -> PlanPoint:
        """The grid of a layout; what is not an axis is switched on."""
        workload, cluster = self.floats
        base = random_plans(1, 0)[0]
        on = dataclasses.replace(
            base,
            sequence_parallel=True,
            overlap_data=True,
            overlap_tensor=True,
            overlap_context=True,
            context_kind="ring",
        )
        return grid(embed(on, workload, float(cluster.tiers[0].usable_size)), *LAYOUTS[layout])

    def grids(self) -> dict[str, Any]:
        """Seconds for the grid in each layout, NumPy and JAX."""
        import jax

        seconds: dict[str, Any] = {}
        workload, cluster = self.on_device
        for layout in LAYOUTS:
            points = self.grid(layout)
            results = [cost(*self.numbers, points, Exact(np))]

            def in_numpy(points: PlanPoint = points, results: list[Any] = results) -> None:
                # the last result lives until the next is there, as in `numpy_per_s`
                results[0] = cost(*self.numbers, points, Exact(np))

            placed = jax.device_put(points)
            in_jax = best_s(
                lambda placed=placed: jax.block_until_ready(compiled.value()(workload, cluster, placed)),
                self.effort["seconds"],
            )
            seconds[layout] = {"numpy_s": best_s(in_numpy, self.effort["seconds"]), "jax_s": in_jax}
            seconds["plans"] = int(np.size(results[0].step_s))
        return seconds
