"""What is run on the devices: one small program for each thing that is measured.

Every body returns arrays of the shapes that it took, so that it can be repeated on its own results inside one call; a
compiler can neither drop a round nor move it out of the loop.
"""

from typing import Any

from costmodel.measured.node.devices import DEVICE, NODE, Arrays, Body, Loop, Shape

_LITTLE = 1e-6  # of a gradient that is added so that it is needed, and changes nothing


def matmul(m: int, n: int, k: int, dtype: str) -> Loop:
    """Two products of 2mnk FLOP a round: (m, k) by (k, n), and the result by (n, k)."""

    def body(state: Arrays, constants: Arrays) -> Arrays:
        return (state[0] @ constants[0] @ constants[1],)

    size = (n * k) ** 0.25  # so that products stay as large as they are
    return Loop(
        state=((m, k),), constants=((k, n), (n, k)), body=body, dtype=dtype, deviation=1.0 / size, donated=False
    )


def linear(m: int, n: int, k: int, dtype: str) -> Loop:
    """The three products of a linear layer, 2mnk FLOP each: (m, k) by (k, n), and both gradients of the result."""
    import jax

    def body(state: Arrays, constants: Arrays) -> Arrays:
        del constants
        out, pull = jax.vjp(lambda x, w: x @ w, *state[:2])
        dx, dw = pull(state[2])
        return state[0] + _LITTLE * dx, state[1] + _LITTLE * dw, out

    return Loop(state=((m, k), (k, n), (m, n)), body=body, dtype=dtype, deviation=0.5 * k**-0.5)


def attention(shape: Shape, dtype: str, backward: bool, kernel: str) -> Loop:
    """Causal self-attention of `shape` (batch, tokens, heads, head size), forward or with its backward pass."""
    import jax

    def forward(q: Any, k: Any, v: Any) -> Any:
        return attend(q, k, v, kernel)

    def only_forward(state: Arrays, constants: Arrays) -> Arrays:
        return (forward(state[0], *constants),)

    def both(state: Arrays, constants: Arrays) -> Arrays:
        out, pull = jax.vjp(forward, *state[:3])
        gradients = pull(state[3])
        del constants
        return (*(x + _LITTLE * dx for x, dx in zip(state[:3], gradients, strict=True)), out)

    if backward:
        return Loop(state=(shape,) * 4, body=both, dtype=dtype)
    return Loop(state=(shape,), constants=(shape, shape), body=only_forward, dtype=dtype)


def attention_kernel(platform: str) -> str:
    """The implementation that is measured: cuDNN's where this GPU has it, else JAX's own; neither on a processor."""
    import jax

    if platform == "cpu":
        return "plain"
    if platform == "gpu":
        try:
            x = jax.numpy.zeros((1, 128, 1, 64), "bfloat16")
            jax.block_until_ready(jax.jit(lambda x: attend(x, x, x, "cudnn"))(x))
        except (NotImplementedError, RuntimeError, ValueError):
            return "xla"
        return "cudnn"
    return "xla"


def attend(q: Any, k: Any, v: Any, kernel: str) -> Any:
    """Causal attention by one of JAX's own implementations (`xla`, `cudnn`), or written out (`plain`)."""
    import jax
    import jax.numpy as jnp

    if kernel != "plain":
        return jax.nn.dot_product_attention(
            q, k, v, is_causal=True, implementation="cudnn" if kernel == "cudnn" else None
        )
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    seen = jnp.arange(q.shape[1])[:, None] >= jnp.arange(k.shape[1])[None, :]
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(seen, scores, -1e30), axis=-1), v)


def triad(elements: int, dtype: str) -> Loop:
    """x = s x + y: two reads and a write of `elements`."""

    def body(state: Arrays, constants: Arrays) -> Arrays:
        return (0.5 * state[0] + constants[0],)

    return Loop(state=((elements,),), constants=((elements,),), body=body, dtype=dtype)


def norm(rows: int, width: int, dtype: str) -> Loop:
    """An RMS norm forward and backward, whose gradient is added to that of the stream beside it."""
    import jax
    import jax.numpy as jnp

    def forward(x: Any, scale: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale

    def body(state: Arrays, constants: Arrays) -> Arrays:
        out, pull = jax.vjp(forward, state[0], state[2])
        dx, d_scale = pull(state[1])
        del constants
        return state[0] + _LITTLE * dx, out, state[2] + _LITTLE * d_scale

    return Loop(state=((rows, width), (rows, width), (width,)), body=body, dtype=dtype)


def gelu(rows: int, width: int, dtype: str) -> Loop:
    """An activation without a gate (GELU) forward and backward."""
    import jax

    def body(state: Arrays, constants: Arrays) -> Arrays:
        del constants
        out, pull = jax.vjp(jax.nn.gelu, state[0])
        return state[0] + _LITTLE * pull(state[1])[0], out

    return Loop(state=((rows, width),) * 2, body=body, dtype=dtype)


def gate(rows: int, width: int, dtype: str) -> Loop:
    """A gated activation (SwiGLU) forward and backward: two inputs of `width` columns each."""
    import jax

    def body(state: Arrays, constants: Arrays) -> Arrays:
        out, pull = jax.vjp(lambda a, b: jax.nn.silu(a) * b, *state[:2])
        del constants
        return (*(x + _LITTLE * dx for x, dx in zip(state[:2], pull(state[2]), strict=True)), out)

    return Loop(state=((rows, width),) * 3, body=body, dtype=dtype)


def loss(rows: int, width: int) -> Loop:
    """Cross-entropy of `rows` tokens over `width` logits in 32 bits, forward and backward."""
    import jax
    import jax.numpy as jnp

    def forward(logits: Any) -> Any:
        chosen = jnp.take_along_axis(logits, jnp.arange(rows)[:, None] % width, axis=-1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)

    def body(state: Arrays, constants: Arrays) -> Arrays:
        del constants
        return (state[0] - jax.grad(forward)(state[0]),)

    return Loop(state=((rows, width),), body=body)


def adam(elements: int) -> Loop:
    """Adam's update of so many parameters in 32 bits."""
    import jax.numpy as jnp

    def body(state: Arrays, constants: Arrays) -> Arrays:
        weight, mean, square = state
        mean = 0.9 * mean + 0.1 * constants[0]
        square = 0.95 * square + 0.05 * constants[0] ** 2
        step = mean / (jnp.sqrt(jnp.abs(square)) + 1e-8) + 0.1 * weight
        return weight - 1e-4 * step, mean, square

    return Loop(state=((elements,),) * 3, constants=((elements,),), body=body)


def kernels(count: int) -> Loop:
    """So many kernels one after another that have almost nothing to do."""

    def body(state: Arrays, constants: Arrays) -> Arrays:
        x = state[0]
        for _ in range(count):
            x = x @ constants[0]
        return (x,)

    return Loop(state=((16, 16),), constants=((16, 16),), body=body, deviation=0.25, donated=False)


def collective(op: str, elements: int, ranks: int, nodes: int) -> Loop:
    """One collective a round over the ranks of a node, or of all `nodes`; `elements` as `nccl-tests` counts them."""
    axes = DEVICE if nodes == 1 else (NODE, DEVICE)
    whole, part = (elements,), (elements // ranks,)
    bodies: dict[str, tuple[Shape, Body]] = {
        "all_reduce": (whole, lambda state, _: (_lax().psum(state[0], axes),)),
        "all_gather": (part, lambda state, _: (_first_of(state[0], _lax().all_gather(state[0], axes, tiled=True)),)),
        "reduce_scatter": (
            whole,
            lambda state, _: (_first_of(state[0], _lax().psum_scatter(state[0], axes, tiled=True)),),
        ),
        "alltoall": (
            (ranks, elements // ranks),
            lambda state, _: (_lax().all_to_all(state[0], axes, 0, 0, tiled=True),),
        ),
        "sendrecv": (
            whole,
            lambda state, _: (_lax().ppermute(state[0], axes, [(i, (i + 1) % ranks) for i in range(ranks)]),),
        ),
    }
    shape, body = bodies[op]
    return Loop(state=(shape,), body=body, deviation=0.0)  # zeros: sums of sums stay what they are


def _first_of(state: Any, result: Any) -> Any:
    """The state with one element of the result, so that the next round waits for this one."""
    return state.at[0].set(result[0])


def _lax() -> Any:
    import jax

    return jax.lax
