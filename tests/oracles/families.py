"""Models of other families written in JAX as one would train them, of which every product and weight is counted."""

import jax
import jax.numpy as jnp

from tests.oracles.decoder import parameter_count, product_flop


def traced(loss, shapes, *inputs) -> tuple[int, int]:
    """Parameters, and FLOP of all products in the loss and its gradient."""
    concrete = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32), shapes, is_leaf=lambda x: isinstance(x, tuple)
    )
    jaxpr = jax.make_jaxpr(jax.value_and_grad(loss))(concrete, *inputs).jaxpr
    return parameter_count(shapes), product_flop(jaxpr)


def dense(inner: int, columns: int, bias: bool = True) -> dict:
    return {"w": (inner, columns)} | ({"b": (columns,)} if bias else {})


def apply(p, x):
    return x @ p["w"] + p.get("b", 0.0)


def layer_norm(width: int) -> dict:
    return {"scale": (width,), "shift": (width,)}


def normed(p, x):
    return x * p["scale"] + p.get("shift", 0.0)


def attend(q, k, v, heads, bias=0.0):
    """Attention over the last but one axis; widths are split into heads."""
    q, k, v = (a.reshape(*a.shape[:-1], heads, -1) for a in (q, k, v))
    scores = jnp.einsum("...qhd,...khd->...hqk", q, k) + bias
    mixed = jnp.einsum("...hqk,...khd->...qhd", jax.nn.softmax(scores), v)
    return mixed.reshape(*mixed.shape[:-2], -1)


def attention_weights(hidden, inner, bias) -> dict:
    return {**{name: dense(hidden, inner, bias) for name in "qkv"}, "out": dense(inner, hidden, bias)}


def attention(p, x, memory, heads):
    return apply(p["out"], attend(apply(p["q"], x), apply(p["k"], memory), apply(p["v"], memory), heads))


def ffn_weights(hidden, ffn, bias) -> dict:
    return {"up": dense(hidden, ffn, bias), "down": dense(ffn, hidden, bias)}


def ffn(p, x):
    return apply(p["down"], jax.nn.gelu(apply(p["up"], x)))


def bert(layers, hidden, heads, ffn_size, vocabulary, positions, tokens):
    """Post-norm encoder with a tied head of the masked language model."""
    layer = {
        "attention": attention_weights(hidden, hidden, True),
        "norm1": layer_norm(hidden),
        "ffn": ffn_weights(hidden, ffn_size, True),
        "norm2": layer_norm(hidden),
    }
    shapes = {
        "words": (vocabulary, hidden),
        "positions": (positions, hidden),
        "types": (2, hidden),
        "norm": layer_norm(hidden),
        "layers": [layer] * layers,
        "transform": dense(hidden, hidden),
        "final": layer_norm(hidden),
        "bias": (vocabulary,),
    }

    def loss(w, ids):
        x = normed(w["norm"], w["words"][ids] + w["positions"][: len(ids)] + w["types"][0])
        for p in w["layers"]:
            x = normed(p["norm1"], x + attention(p["attention"], x, x, heads))
            x = normed(p["norm2"], x + ffn(p["ffn"], x))
        x = normed(w["final"], jax.nn.gelu(apply(w["transform"], x)))
        return jnp.sum(jax.nn.log_softmax(x @ w["words"].T + w["bias"]))

    return traced(loss, shapes, jax.ShapeDtypeStruct((tokens,), jnp.int32))


def sequence_to_sequence(layers, down, hidden, heads, head_size, ffn_size, vocabulary, source, target):
    """Pre-norm encoder and decoder with biases, learned positions and one tied table (mBART)."""
    inner = heads * head_size
    side = {
        "norm1": layer_norm(hidden),
        "attention": attention_weights(hidden, inner, True) | {"out": dense(inner, hidden)},
        "norm2": layer_norm(hidden),
        "ffn": ffn_weights(hidden, ffn_size, True),
    }
    crossing = side | {"norm3": layer_norm(hidden), "cross": attention_weights(hidden, inner, True)}
    shapes = {
        "words": (vocabulary, hidden),
        "positions": [(source, hidden), (target, hidden)],
        "encoder": [side] * layers,
        "decoder": [crossing] * down,
        "norms": [layer_norm(hidden)] * 4,
    }

    def loss(w, read, written):
        x = normed(w["norms"][0], w["words"][read] + w["positions"][0])
        for p in w["encoder"]:
            h = normed(p["norm1"], x)
            x = x + attention(p["attention"], h, h, heads)
            x = x + ffn(p["ffn"], normed(p["norm2"], x))
        memory, x = normed(w["norms"][1], x), normed(w["norms"][2], w["words"][written] + w["positions"][1])
        for p in w["decoder"]:
            h = normed(p["norm1"], x)
            x = x + attention(p["attention"], h, h, heads)
            x = x + attention(p["cross"], normed(p["norm3"], x), memory, heads)
            x = x + ffn(p["ffn"], normed(p["norm2"], x))
        return jnp.sum(jax.nn.log_softmax(normed(w["norms"][3], x) @ w["words"].T))

    ids = (jax.ShapeDtypeStruct((tokens,), jnp.int32) for tokens in (source, target))
    return traced(loss, shapes, *ids)


def swin(depths, hidden, heads, image, window, patch, classes):
    """Stages of window attention with relative positions; shifts are left out, which changes no product."""
    stages = []
    for stage, depth in enumerate(depths):
        width = hidden * 2**stage
        layer = {
            "norm1": layer_norm(width),
            "attention": attention_weights(width, width, True),
            "table": ((2 * window[stage] - 1) ** 2, heads[stage]),
            "norm2": layer_norm(width),
            "ffn": ffn_weights(width, 4 * width, True),
        }
        merging = {"norm": layer_norm(2 * width), "merge": dense(2 * width, width, False)} if stage else {}
        stages.append({"layers": [layer] * depth} | merging)
    shapes = {
        "patches": dense(patch * patch * 3, hidden),
        "norm": layer_norm(hidden),
        "stages": stages,
        "final": layer_norm(hidden * 2 ** (len(depths) - 1)),
        "classes": dense(hidden * 2 ** (len(depths) - 1), classes),
    }

    def block(p, x, size, count):
        side, width = x.shape[0] // size, x.shape[-1]
        index = jnp.zeros((size * size, size * size), jnp.int32)  # values do not matter to a trace
        bias = jnp.moveaxis(p["table"][index], -1, 0)
        h = normed(p["norm1"], x).reshape(side, size, side, size, width).swapaxes(1, 2)
        h = h.reshape(-1, size * size, width)
        q, k, v = (apply(p["attention"][name], h) for name in "qkv")
        h = apply(p["attention"]["out"], attend(q, k, v, count, bias))
        x = x + h.reshape(side, side, size, size, width).swapaxes(1, 2).reshape(x.shape)
        return x + ffn(p["ffn"], normed(p["norm2"], x))

    def loss(w, pixels):
        side = image // patch
        x = pixels.reshape(side, patch, side, patch, 3).swapaxes(1, 2).reshape(side, side, -1)
        x = normed(w["norm"], apply(w["patches"], x))
        for stage, p in enumerate(w["stages"]):
            if stage:
                side = x.shape[0] // 2
                x = x.reshape(side, 2, side, 2, -1).swapaxes(1, 2).reshape(side, side, -1)
                x = apply(p["merge"], normed(p["norm"], x))
            for layer in p["layers"]:
                x = block(layer, x, window[stage], heads[stage])
        x = normed(w["final"], x).mean((0, 1))
        return jnp.sum(jax.nn.log_softmax(apply(w["classes"], x[None])))

    return traced(loss, shapes, jax.ShapeDtypeStruct((image, image, 3), jnp.float32))


def dlrm(tables, hidden, dense_features, bottom, top):
    """One sample: rows of tables, an MLP of the dense features, products of all pairs, an MLP to one logit."""
    features = len(tables) + 1
    pairs = jnp.triu_indices(features, 1)

    def mlp(inputs, widths):
        return [dense(a, b) for a, b in zip((inputs, *widths), widths, strict=False)]

    shapes = {
        "tables": [(rows, hidden) for rows in tables],
        "bottom": mlp(dense_features, bottom),
        "top": mlp(hidden + len(pairs[0]), top),
    }

    def loss(w, numbers, ids):
        x = numbers[None]
        for p in w["bottom"]:
            x = jax.nn.relu(apply(p, x))
        vectors = jnp.stack([x[0], *(table[i] for table, i in zip(w["tables"], ids, strict=True))])
        x = jnp.concatenate([x[0], (vectors @ vectors.T)[pairs]])[None]
        for p in w["top"]:
            x = jax.nn.relu(apply(p, x))
        return jnp.sum(x)

    inputs = (
        jax.ShapeDtypeStruct((dense_features,), jnp.float32),
        jax.ShapeDtypeStruct((len(tables),), jnp.int32),
    )
    return traced(loss, shapes, *inputs)
