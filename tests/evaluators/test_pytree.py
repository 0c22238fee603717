"""Every dataclass as a JAX pytree: round trips, arguments of JIT, import order."""

import dataclasses
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import costmodel
from costmodel.evaluators.evaluate import evaluate
from costmodel.exact import Exact
from costmodel.formulas.breakdown import breakdown
from costmodel.formulas.busy import busy
from costmodel.formulas.cost import Cost, cost, parts
from costmodel.formulas.curves import hardware_of
from costmodel.inputs import options
from costmodel.inputs.cluster import Cluster
from costmodel.inputs.embedding import embed
from costmodel.inputs.plan import Plan
from costmodel.inputs.schedules import schedule_rows
from costmodel.inputs.workload import Workload
from costmodel.pytree import map_leaves
from costmodel.specs.loading import load_cluster, load_curves
from costmodel.specs.workloads import load_workload
from tests.support.builders import small_moe
from tests.support.trees import with_offload

NUMPY = Exact(np)


def pytree_classes() -> set[type]:
    """All classes of the package that JAX should know: dataclasses that `pytree.pytree` made."""
    found: set[type] = set()
    for module in pkgutil.walk_packages(costmodel.__path__, "costmodel."):
        members = vars(importlib.import_module(module.name)).values()
        found |= {c for c in members if isinstance(c, type) and dataclasses.is_dataclass(c)}
    return {c for c in found if c.__module__.startswith("costmodel") and _is_registered(c)}


def _is_registered(cls: type) -> bool:
    """A node and not a leaf, judged on an instance without values: JAX rebuilds trees of placeholders, too."""
    return not jax.tree_util.all_leaves([_hollow(cls)])


def _hollow(cls: type):
    empty = object.__new__(cls)
    for field in dataclasses.fields(cls):
        object.__setattr__(empty, field.name, ())
    return empty


def instances(tree) -> list:
    """A tree and every dataclass inside it."""
    if isinstance(tree, tuple):
        return [found for item in tree for found in instances(item)]
    if not dataclasses.is_dataclass(tree):
        return []
    inside = [f.name for f in dataclasses.fields(tree) if not f.metadata.get("static")]  # habits are no tree of leaves
    return [tree, *(found for name in inside for found in instances(getattr(tree, name)))]


@pytest.fixture(scope="module")
def everything(small_decoder, two_tiers):
    """One evaluation with all that it is made of."""
    point = embed(Plan(data=4, tensor=4, pipeline=4), small_decoder, 8)
    done = parts(small_decoder, two_tiers, point, NUMPY)
    report = breakdown(small_decoder, two_tiers, point, done, NUMPY)
    again = embed(Plan(data=64, expert=4, recompute="norms+latent"), small_moe(), 8)
    experts = (again, *parts(small_moe(), two_tiers, again, NUMPY))
    priced = load_cluster("h100", accelerators=8)
    answer = evaluate(load_workload("llama3-8b", batch=8), priced, Plan(data=8))
    bought = (load_curves(), hardware_of(priced))
    job = (small_decoder, two_tiers, point, priced, answer, *bought)
    moved = parts(small_decoder, two_tiers, with_offload(point), NUMPY)
    units = busy(done.counts, done.times, done.step.work, point, two_tiers)
    shown = (report, units, Cost(step_s=1.0, peak_bytes=2.0))
    return instances((*job, with_offload(point), *done, *moved, *experts, *shown))


def test_the_evaluation_holds_nearly_every_class(everything):
    missing = {cls.__name__ for cls in pytree_classes() - {type(item) for item in everything}}
    inside = {"Roof", "StageKind"}  # of a formula only
    inside |= {"MethodRow"}  # of methods other than summing gradients
    inside |= {"StageSeconds", "Graph", "Costs"}  # of the formula of unequal stages, of what is played out
    assert missing <= inside


def test_round_trip(everything):
    for item in everything:
        leaves, structure = jax.tree.flatten(item)
        assert jax.tree.unflatten(structure, leaves) == item
        assert jax.tree.unflatten(structure, [2 * leaf for leaf in leaves]) == map_leaves(lambda leaf: 2 * leaf, item)


def test_placeholders_and_none_pass(everything):
    for item in everything:
        structure = jax.tree.structure(item)
        assert jax.tree.structure(jax.tree.unflatten(structure, [object()] * structure.num_leaves)) == structure


def test_replace(everything):
    for item in everything:
        names = [f.name for f in dataclasses.fields(item) if not f.metadata.get("static")]
        replaced = dataclasses.replace(item, **{names[0]: 7.0})
        assert getattr(replaced, names[0]) == 7.0
        assert type(replaced) is type(item)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(item, names[0], 7.0)


def test_static_fields_are_hashable(everything):
    for item in everything:
        static = [getattr(item, f.name) for f in dataclasses.fields(item) if f.metadata.get("static")]
        assert isinstance(hash((tuple(static), jax.tree.structure(item))), int)  # or it raises


def test_leaves_are_numbers(everything):
    for item in everything:
        assert all(np.ndim(leaf) == 0 and np.isreal(leaf) for leaf in jax.tree.leaves(item))


def test_option_rows_have_one_structure():
    for table in (
        schedule_rows(),
        options.ZERO_STAGES,
        options.RECOMPUTES,
        options.PRECISIONS,
        options.ATTENTIONS,
        options.LOSSES,
        options.DISPATCHERS,
    ):
        assert len({jax.tree.structure(row) for row in table.values()}) == 1


def test_one_trace_serves_other_numbers_plans_and_clusters(small_decoder: Workload, two_tiers: Cluster):
    traces = []

    @jax.jit
    def step_s(workload, cluster, point):
        traces.append(1)
        return cost(workload, cluster, point, Exact(jnp)).step_s

    plans = [Plan(data=64), Plan(data=4, tensor=4, pipeline=4, schedule="zb_h1", zero_stage=3), Plan(data=8, context=8)]
    floats = map_leaves(float, small_decoder)
    twice = tuple(map_leaves(lambda leaf: 2.0 * leaf, tree) for tree in (floats, two_tiers))
    for plan in plans:
        for numbers in ((floats, two_tiers), twice):
            step_s.trace(*numbers, embed(plan, small_decoder, 8))
    assert len(traces) == 1


def test_differentiable_with_respect_to_whole_trees(small_decoder: Workload, two_tiers: Cluster):
    point = embed(Plan(data=4, tensor=4, pipeline=4), small_decoder, 8)
    floats = map_leaves(float, small_decoder)
    slopes = jax.grad(lambda *trees: cost(*trees, Exact(jnp)).step_s, argnums=(0, 1, 2))(floats, two_tiers, point)
    assert slopes[0].batch > 0
    assert slopes[1].accelerator.peak_16bit_flop_per_s < 0
    assert slopes[1].tiers[1].latency_s > 0
    assert np.isfinite(slopes[2].tensor)


# import order

WITHOUT_JAX = "import sys, costmodel; costmodel.cost, costmodel.evaluate; assert 'jax' not in sys.modules"
GRADIENT = """
from costmodel import Plan, Exact, cost, embed, load_cluster, load_workload, as_floats
workload, cluster = as_floats(load_workload('llama3-8b', batch=64)), as_floats(load_cluster('h100', accelerators=8))
point = embed(Plan(data=8), workload, 8)
slope = jax.grad(lambda c: cost(workload, c, point, Exact(jax.numpy)).step_s)(cluster)
assert type(slope) is type(cluster) and slope.accelerator.peak_16bit_flop_per_s < 0
"""
MADE = "from costmodel import Accelerator, Exact, evaluate, load_cluster, load_workload, map_leaves, prepare, Plan\n"
MAPPED = "\nassert jax.tree.map(lambda leaf: 2 * leaf, made) == map_leaves(lambda leaf: 2 * leaf, made)"
PEAKS = "{f'peak_{bits}bit_flop_per_s': 1.0 for bits in (4, 8, 16, 32)}"
CHIP = f"made = Accelerator(name='', hbm_bytes=1.0, hbm_bytes_per_s=2.0, **{PEAKS})"
JOB = "job = load_workload('llama3-8b'), load_cluster('h100', accelerators=8), Plan(data=8)\nimport jax\n"
NO_HOOK = (
    "import sys\nfinders = list(sys.meta_path)\n"
    + MADE
    + "assert sys.meta_path == finders and 'jax' not in sys.modules"
)
ORDERS = {
    "without jax": WITHOUT_JAX,
    "costmodel first": "import costmodel\nimport jax" + GRADIENT,
    "jax first": "import jax\nimport costmodel" + GRADIENT,
    "classes first, then a cluster": MADE + "import jax\nmade = load_cluster('h100')" + MAPPED,
    "classes first, then a workload": MADE + "import jax\nmade = load_workload('llama3-8b')" + MAPPED,
    "objects first, then prepare": MADE + JOB + "made = prepare(*job)" + MAPPED,
    "objects first, then floats": MADE + JOB + "made = map_leaves(float, job[0])" + MAPPED,
    "objects first, then a semantics": MADE + JOB + "Exact(jax.numpy)\nmade = job[:2]" + MAPPED,
    "objects first, then registered": MADE + CHIP + "\nimport jax, costmodel\ncostmodel.register_pytrees()" + MAPPED,
    "no hook is left behind": NO_HOOK,
}


@pytest.mark.parametrize("code", ORDERS.values(), ids=ORDERS)
def test_import_order(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(costmodel.__file__).parent
    )
    assert done.returncode == 0, done.stderr
