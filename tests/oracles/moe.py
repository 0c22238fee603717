"""A mixture-of-experts decoder written in JAX, of which every product is counted; and tokens routed rank by rank."""

import jax
import jax.numpy as jnp

from tests.oracles.decoder import product_flop


def training_flop(*, hidden, heads, latent, sequence, experts, top_k, ffn, shared, vocabulary, dense_ffn, layers):
    """FLOP of one sequence through dense and expert layers with latent attention, forward and backward."""

    def loss(x, w):
        for kind in layers:
            x = x + latent_attention(w["attention"], x, heads, latent)
            x = x + (gated(w["dense"], x) if kind == "dense" else routed(w, x, experts, top_k))
        return jnp.sum(jax.nn.log_softmax(x @ w["head"]))

    spec = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32),
        weights(hidden, heads, latent, experts, ffn, shared, vocabulary, dense_ffn),
        is_leaf=lambda x: isinstance(x, tuple),
    )
    x = jax.ShapeDtypeStruct((sequence, hidden), jnp.float32)
    return product_flop(jax.make_jaxpr(jax.value_and_grad(loss, argnums=(0, 1)))(x, spec).jaxpr)


def weights(hidden, heads, latent, experts, ffn, shared, vocabulary, dense_ffn):
    key = latent.nope_size + latent.rope_size

    def mlp(width):
        return {"up": (hidden, width), "gate": (hidden, width), "down": (width, hidden)}

    return {
        "attention": {
            "q_down": (hidden, latent.query_rank),
            "kv_down": (hidden, latent.key_value_rank + latent.rope_size),
            "q_up": (latent.query_rank, heads * key),
            "kv_up": (latent.key_value_rank, heads * (latent.nope_size + latent.value_size)),
            "out": (heads * latent.value_size, hidden),
        },
        "dense": mlp(dense_ffn),
        "shared": mlp(shared),
        "router": (hidden, experts),
        "experts": {name: (experts, *shape) for name, shape in mlp(ffn).items()},
        "head": (hidden, vocabulary),
    }


def gated(w, x):
    return (x @ w["up"] * jax.nn.silu(x @ w["gate"])) @ w["down"]


def latent_attention(w, x, heads, latent):
    n, key = len(x), latent.nope_size + latent.rope_size
    q = (x @ w["q_down"] @ w["q_up"]).reshape(n, heads, key)
    down = x @ w["kv_down"]
    opened = (down[:, : latent.key_value_rank] @ w["kv_up"]).reshape(n, heads, -1)
    rope = jnp.broadcast_to(down[:, None, latent.key_value_rank :], (n, heads, latent.rope_size))
    k = jnp.concatenate([opened[..., : latent.nope_size], rope], -1)
    v = opened[..., latent.nope_size :]
    mixed = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(jnp.einsum("qhd,khd->hqk", q, k)), v)
    return mixed.reshape(n, -1) @ w["out"]


def routed(w, x, experts, top_k):
    """Balanced: every expert takes the same number of tokens."""
    scores = x @ w["router"]
    rows = len(x) * top_k // experts
    arrived = jnp.broadcast_to(x[:rows], (experts, rows, x.shape[1])) + scores.sum()
    w_e = w["experts"]
    opened, gate = (jnp.einsum("erh,ehf->erf", arrived, w_e[name]) for name in ("up", "gate"))
    middle = opened * jax.nn.silu(gate)
    out = jnp.einsum("erf,efh->erh", middle, w_e["down"])
    return jnp.resize(out.sum((0, 1)), x.shape) + gated(w["shared"], x)
