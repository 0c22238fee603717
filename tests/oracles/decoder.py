"""A decoder written in JAX as one would train it, of which every product and every weight is counted."""

import math

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np


def weights(*, layers, hidden, heads, key_value_heads, head_size, ffn, gated, vocabulary):
    """Shapes of all weight matrices and norm scales."""
    layer = {
        "norm1": (hidden,),
        "q": (hidden, heads * head_size),
        "k": (hidden, key_value_heads * head_size),
        "v": (hidden, key_value_heads * head_size),
        "out": (heads * head_size, hidden),
        "norm2": (hidden,),
        "up": (hidden, ffn),
        "down": (ffn, hidden),
    }
    if gated:
        layer["gate"] = (hidden, ffn)
    return {
        "embedding": (vocabulary, hidden),
        "layers": [layer] * layers,
        "norm": (hidden,),
        "head": (hidden, vocabulary),
    }


def forward(w, tokens, heads, head_size):
    """Logits of one sequence."""
    x = w["embedding"][tokens]
    for layer in w["layers"]:
        x = x + attention(layer, x * layer["norm1"], heads, head_size)
        h = x * layer["norm2"]
        opened = h @ layer["up"]
        if "gate" in layer:
            opened = opened * jax.nn.silu(h @ layer["gate"])
        x = x + opened @ layer["down"]
    return (x * w["norm"]) @ w["head"]


def attention(layer, x, heads, head_size):
    q = (x @ layer["q"]).reshape(len(x), heads, head_size)
    k, v = ((x @ layer[name]).reshape(len(x), -1, head_size) for name in "kv")
    k, v = (jnp.repeat(a, heads // a.shape[1], axis=1) for a in (k, v))
    scores = jnp.einsum("qhd,khd->hqk", q, k)
    mixed = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), v)
    return mixed.reshape(len(x), -1) @ layer["out"]


def product_flop(jaxpr) -> int:
    """FLOP of every dot product in a traced program: two for each multiply-add."""
    flop = 0
    for equation in jaxpr.eqns:
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            flop += product_flop(inner)
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left, result = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
            flop += 2 * math.prod(result) * math.prod(left[axis] for axis in contracted)
    return flop


def training_flop(shapes, sequence, heads, head_size) -> int:
    """FLOP of all products in the loss and its gradient, for one sequence."""
    concrete = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32), shapes, is_leaf=lambda x: isinstance(x, tuple)
    )
    tokens = jax.ShapeDtypeStruct((sequence,), jnp.int32)

    def loss(w, tokens):
        return jnp.sum(jax.nn.log_softmax(forward(w, tokens, heads, head_size)))

    return product_flop(jax.make_jaxpr(jax.value_and_grad(loss))(concrete, tokens).jaxpr)


def parameter_count(shapes) -> int:
    return sum(int(np.prod(shape)) for shape in jax.tree.leaves(shapes, is_leaf=lambda x: isinstance(x, tuple)))
