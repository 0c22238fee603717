"""A training step of a small decoder in plain JAX, in 32 bits: data- and tensor-parallel as Megatron-LM divides it.

Every rank runs the same program under `shard_map`; what crosses the tensor ranks is written out (`_copied`, `_summed`),
so that the compiled program holds the collectives that the cost model counts, and no others.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiments.real_steps.layouts import Layout, Model

Tree = Any
DATA, TENSOR = "data", "tensor"


@jax.custom_vjp
def _copied(x: jax.Array) -> jax.Array:
    """Into a tensor-parallel region: the gradient is the sum over its ranks."""
    return x


_copied.defvjp(lambda x: (x, None), lambda _, g: (jax.lax.psum(g, TENSOR),))


@jax.custom_vjp
def _summed(x: jax.Array) -> jax.Array:
    """Out of it: the sum over its ranks, each of which has the whole gradient."""
    return jax.lax.psum(x, TENSOR)


_summed.defvjp(lambda x: (jax.lax.psum(x, TENSOR), None), lambda _, g: (g,))


def weights(model: Model, seed: int = 0) -> Tree:
    """All weights, undivided. Columns of fused matrices come rank by rank, so that a rank's share is one piece."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (0.02 * random.standard_normal(shape)).astype(np.float32)

    hidden, width = model.hidden, model.ffn * (2 if model.gated else 1)
    layer = {
        "attention_norm": lambda: np.ones(hidden, np.float32),
        "qkv": lambda: normal(hidden, 3 * hidden),
        "out": lambda: normal(hidden, hidden),
        "ffn_norm": lambda: np.ones(hidden, np.float32),
        "up": lambda: normal(hidden, width),
        "down": lambda: normal(model.ffn, hidden),
    }
    return {
        "table": normal(model.vocabulary, hidden),
        "positions": normal(model.sequence, hidden),
        "layers": [{name: make() for name, make in layer.items()} for _ in range(model.layers)],
        "norm": np.ones(hidden, np.float32),
        "head": normal(hidden, model.vocabulary),
    }


def shares(model: Model) -> Tree:
    """How each weight is divided over the tensor ranks."""
    columns, rows, whole = PartitionSpec(None, TENSOR), PartitionSpec(TENSOR, None), PartitionSpec()
    layer = {"attention_norm": whole, "qkv": columns, "out": rows, "ffn_norm": whole, "up": columns, "down": rows}
    layers = [dict(layer) for _ in range(model.layers)]
    return {"table": rows, "positions": whole, "layers": layers, "norm": whole, "head": columns}


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def _attention(x: jax.Array, own: Tree, model: Model) -> jax.Array:
    head_size = model.hidden // model.heads
    batch, tokens, _ = x.shape
    q, k, v = jnp.moveaxis((x @ own["qkv"]).reshape(batch, tokens, 3, -1, head_size), 2, 0)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * head_size**-0.5
    seen = jnp.arange(tokens)[:, None] >= jnp.arange(tokens)[None, :]
    shares_of_keys = jax.nn.softmax(jnp.where(seen, scores, -1e30), axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", shares_of_keys, v)
    return _summed(mixed.reshape(batch, tokens, -1) @ own["out"])


def _feed_forward(x: jax.Array, own: Tree, model: Model) -> jax.Array:
    opened = x @ own["up"]
    if model.gated:
        gate, value = jnp.split(opened, 2, axis=-1)
        return _summed((jax.nn.silu(gate) * value) @ own["down"])
    return _summed(jax.nn.gelu(opened) @ own["down"])


def _layer(x: jax.Array, own: Tree, model: Model) -> jax.Array:
    x = x + _attention(_copied(_norm(x, own["attention_norm"])), own, model)
    return x + _feed_forward(_copied(_norm(x, own["ffn_norm"])), own, model)


def _embedded(tokens: jax.Array, table: jax.Array) -> jax.Array:
    """Rows of a table that is divided by its rows."""
    local = tokens - jax.lax.axis_index(TENSOR) * table.shape[0]
    inside = (local >= 0) & (local < table.shape[0])
    return _summed(jnp.where(inside[..., None], table[jnp.where(inside, local, 0)], 0.0))


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean over tokens, from logits that are divided by the vocabulary."""
    largest = jax.lax.pmax(jax.lax.stop_gradient(logits).max(axis=-1), TENSOR)
    shifted = logits - largest[..., None]
    local = labels - jax.lax.axis_index(TENSOR) * logits.shape[-1]
    inside = (local >= 0) & (local < logits.shape[-1])
    chosen = jnp.take_along_axis(shifted, jnp.where(inside, local, 0)[..., None], axis=-1)[..., 0]
    return jnp.mean(jnp.log(_summed(jnp.exp(shifted).sum(axis=-1))) - _summed(jnp.where(inside, chosen, 0.0)))


def loss(own: Tree, tokens: jax.Array, layout: Layout) -> jax.Array:
    """The loss of one microbatch: `tokens` holds one more than the sequence."""
    model = layout.model
    x = _embedded(tokens[:, :-1], own["table"]) + own["positions"]
    for part in own["layers"]:
        one = jax.checkpoint(lambda x, part: _layer(x, part, model)) if layout.recompute else None
        x = one(x, part) if one else _layer(x, part, model)
    return _cross_entropy(_copied(_norm(x, own["norm"])) @ own["head"], tokens[:, 1:])


def _gradients(own: Tree, tokens: jax.Array, layout: Layout) -> tuple[jax.Array, Tree]:
    """Mean loss and gradients of a rank's microbatches, then of all data ranks, once a step."""
    of_one = jax.value_and_grad(lambda own, part: loss(own, part, layout))
    if layout.microbatches == 1:
        value, summed = of_one(own, tokens[0])
    else:

        def add(so_far: tuple[jax.Array, Tree], part: jax.Array) -> tuple[tuple[jax.Array, Tree], None]:
            return jax.tree.map(jnp.add, so_far, of_one(own, part)), None

        start = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, own))
        (value, summed), _ = jax.lax.scan(add, start, tokens)
    share = 1.0 / (layout.data * layout.microbatches)
    return jax.tree.map(lambda g: share * (jax.lax.psum(g, DATA) if layout.data > 1 else g), (value, summed))


def _step(layout: Layout, optimizer: optax.GradientTransformation) -> Callable[..., Any]:
    def step(own: Tree, state: Tree, tokens: jax.Array) -> tuple[Tree, Tree, jax.Array]:
        value, gradients = _gradients(own, tokens[:, 0], layout)
        updates, state = optimizer.update(gradients, state, own)
        return optax.apply_updates(own, updates), state, value

    return step


def program(layout: Layout) -> tuple[Any, tuple[Tree, Tree, jax.Array]]:
    """The step, to be lowered, and its arguments: weights, optimizer states and tokens."""
    devices = np.array(jax.devices()[: layout.devices]).reshape(layout.data, layout.tensor)
    mesh, optimizer, model = Mesh(devices, (DATA, TENSOR)), optax.adamw(1e-3), layout.model
    divided = shares(model)
    own = jax.tree.map(lambda w, share: jax.device_put(w, NamedSharding(mesh, share)), weights(model), divided)
    adam, *rest = jax.eval_shape(optimizer.init, own)
    states = (adam._replace(count=PartitionSpec(), mu=divided, nu=divided), *rest)
    of_tokens = PartitionSpec(None, DATA)
    mapped = jax.shard_map(
        _step(layout, optimizer),
        mesh=mesh,
        in_specs=(divided, states, of_tokens),
        out_specs=(divided, states, PartitionSpec()),
        check_vma=False,
    )
    random = np.random.default_rng(1)
    shape = (layout.microbatches, layout.data, layout.microbatch, model.sequence + 1)
    tokens = random.integers(0, model.vocabulary, shape, dtype=np.int32)
    state = optimizer.init(own)
    state = jax.tree.map(
        lambda leaf, share: jax.device_put(leaf, NamedSharding(mesh, share)),
        state,
        states,
        is_leaf=lambda leaf: isinstance(leaf, jax.Array),
    )
    step = jax.jit(mapped, donate_argnums=(0, 1))
    return step, (own, state, jax.device_put(tokens, NamedSharding(mesh, of_tokens)))
