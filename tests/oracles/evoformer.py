"""An Evoformer stack written in JAX after the supplement of Jumper et al. 2021, algorithms 6 to 19."""

import jax
import jax.numpy as jnp

from tests.oracles.families import apply, attend, dense, layer_norm, normed, traced


def gated(hidden) -> dict:
    return {name: dense(hidden, hidden, False) for name in "qkv"} | {
        "g": dense(hidden, hidden),
        "o": dense(hidden, hidden),
    }


def gated_attention(p, x, heads, bias=0.0):
    q, k, v = (apply(p[name], x) for name in "qkv")
    return apply(p["o"], jax.nn.sigmoid(apply(p["g"], x)) * attend(q, k, v, heads, bias))


def transition(hidden) -> dict:
    return {"norm": layer_norm(hidden), "up": dense(hidden, 4 * hidden), "down": dense(4 * hidden, hidden)}


def transit(p, x):
    return x + apply(p["down"], jax.nn.relu(apply(p["up"], normed(p["norm"], x))))


def block_weights(c_m, c_z, heads, pair_heads, c, global_columns) -> dict:
    multiplication = {
        "norm": layer_norm(c_z),
        **{name: dense(c_z, c_z) for name in ("a", "ag", "b", "bg", "g", "z")},
        "out": layer_norm(c_z),
    }
    triangle = {"norm": layer_norm(c_z), "bias": dense(c_z, pair_heads, False), "attention": gated(c_z)}
    column = gated(c_m)
    if global_columns:
        column |= {name: dense(c_m, c_m // heads, False) for name in "kv"}
    return {
        "row": {
            "norm": layer_norm(c_m),
            "pair": layer_norm(c_z),
            "bias": dense(c_z, heads, False),
            "attention": gated(c_m),
        },
        "column": {"norm": layer_norm(c_m), "attention": column},
        "msa": transition(c_m),
        "outer": {"norm": layer_norm(c_m), "a": dense(c_m, c), "b": dense(c_m, c), "out": dense(c * c, c_z)},
        "multiplications": [multiplication] * 2,
        "triangles": [triangle] * 2,
        "pair": transition(c_z),
    }


def global_column(p, m, heads):
    """One query for each head and residue: the mean over the sequences."""
    x = m.swapaxes(0, 1)  # residues, sequences, channels
    q = apply(p["q"], x.mean(1)).reshape(x.shape[0], heads, -1)
    k, v = apply(p["k"], x), apply(p["v"], x)
    mixed = jnp.einsum("rhs,rsc->rhc", jax.nn.softmax(jnp.einsum("rhc,rsc->rhs", q, k)), v)
    gate = jax.nn.sigmoid(apply(p["g"], x))
    return apply(p["o"], gate * mixed.reshape(x.shape[0], 1, -1)).swapaxes(0, 1)


def block(w, m, z, heads, pair_heads, global_columns):
    row, column, outer = w["row"], w["column"], w["outer"]
    bias = jnp.moveaxis(apply(row["bias"], normed(row["pair"], z)), -1, 0)
    m = m + gated_attention(row["attention"], normed(row["norm"], m), heads, bias)
    x = normed(column["norm"], m)
    if global_columns:
        m = m + global_column(column["attention"], x, heads)
    else:
        m = m + gated_attention(column["attention"], x.swapaxes(0, 1), heads).swapaxes(0, 1)
    m = transit(w["msa"], m)
    x = normed(outer["norm"], m)
    product = jnp.einsum("sic,sjd->ijcd", apply(outer["a"], x), apply(outer["b"], x))
    z = z + apply(outer["out"], product.reshape(*z.shape[:2], -1))
    for p, formula in zip(w["multiplications"], ("ikc,jkc->ijc", "kic,kjc->ijc"), strict=True):
        x = normed(p["norm"], z)
        a, b = (jax.nn.sigmoid(apply(p[f"{s}g"], x)) * apply(p[s], x) for s in "ab")
        z = z + jax.nn.sigmoid(apply(p["g"], x)) * apply(p["z"], normed(p["out"], jnp.einsum(formula, a, b)))
    for p, ending in zip(w["triangles"], (False, True), strict=True):
        x = normed(p["norm"], z)
        x = x.swapaxes(0, 1) if ending else x
        x = gated_attention(p["attention"], x, pair_heads, jnp.moveaxis(apply(p["bias"], x), -1, 0))
        z = z + (x.swapaxes(0, 1) if ending else x)
    return m, transit(w["pair"], z)


def evoformer(layers, extra_layers, s, extra_s, r, c_m, c_e, c_z, heads, pair_heads, c):
    shapes = {
        "extra": [block_weights(c_e, c_z, heads, pair_heads, c, True)] * extra_layers,
        "main": [block_weights(c_m, c_z, heads, pair_heads, c, False)] * layers,
    }

    def loss(w, inputs):
        m, e, z = inputs
        for p in w["extra"]:
            e, z = block(p, e, z, heads, pair_heads, True)
        for p in w["main"]:
            m, z = block(p, m, z, heads, pair_heads, False)
        return jnp.sum(m) + jnp.sum(z) + jnp.sum(e)

    def given(w, m, e, z):
        return loss(w, (m + w["entry"][0], e + w["entry"][1], z + w["entry"][2]))

    sizes = [(s, r, c_m), (extra_s, r, c_e), (r, r, c_z)]
    count, flop = traced(
        given, shapes | {"entry": [(c_m,), (c_e,), (c_z,)]}, *(jax.ShapeDtypeStruct(x, jnp.float32) for x in sizes)
    )
    return count - (c_m + c_e + c_z), flop
