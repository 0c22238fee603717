"""Operators of one Evoformer block, after the supplement of Jumper et al. 2021 (algorithms 7 to 15, 19)."""

import dataclasses

from costmodel.inputs import Kind, Op, Role, Saved, Size, Sizes
from costmodel.models.pieces import TOKENS, Heads, activation, core, integral, linear, norm, residual
from costmodel.semantics import Scalar


def row_attention(s: Scalar, r: Scalar, hidden: Scalar, pair_hidden: Scalar, heads: Scalar) -> tuple[Op, ...]:
    """Attention along the residues of each sequence, with a bias from the pairs."""
    return (
        norm("msa row norm", s * r, hidden, layer_norm=True, role=Role.INPUT),
        norm("row pair norm", r * r, pair_hidden, layer_norm=True, role=Role.INPUT),
        _linear("row pair bias", r * r, pair_hidden, heads),
        *_gated_attention("msa row", s * r, r, hidden, heads),
    )


def column_attention(s: Scalar, r: Scalar, hidden: Scalar, heads: Scalar) -> tuple[Op, ...]:
    """Attention along the sequences at each residue."""
    return (
        norm("msa column norm", s * r, hidden, layer_norm=True),
        *_gated_attention("msa column", s * r, s, hidden, heads),
    )


def global_column_attention(s: Scalar, r: Scalar, hidden: Scalar, heads: Scalar) -> tuple[Op, ...]:
    """One mean query for each head and residue over the extra sequences, with one head of keys and values."""
    size = integral(hidden / heads)
    looks = Heads(heads=heads, key_value_heads=1, head_size=size, keys=s, split=())
    return (
        norm("msa column norm", s * r, hidden, layer_norm=True),
        _linear("msa column query", r, hidden, hidden),
        _linear("msa column key value", s * r, hidden, 2 * size, matrices=2),
        core("msa column", r, looks, dropout=False, moved=s),
        *_gate("msa column", s * r, hidden),
    )


def transition(name: str, rows: Scalar, hidden: Scalar, ratio: Scalar) -> tuple[Op, ...]:
    """Two linear layers with an activation between them, `ratio` times as wide inside."""
    width = (Size(value=ratio * hidden),)
    return (
        norm(f"{name} transition norm", rows, hidden, layer_norm=True),
        _linear(f"{name} transition up", rows, hidden, ratio * hidden, bias=ratio * hidden),
        activation(f"{name} transition", rows, width, width, 1.0),
        _linear(f"{name} transition down", rows, ratio * hidden, hidden, bias=hidden),
        residual(f"{name} transition residual", rows, hidden),
    )


def outer_product_mean(s: Scalar, r: Scalar, hidden: Scalar, pair_hidden: Scalar, size: Scalar) -> tuple[Op, ...]:
    """The way from the MSA to the pairs: products of every two residues' projections, in the mean over sequences."""
    product = Op(
        name="outer product",
        kind=Kind.PRODUCT,
        rows=(Size(value=r * size, split=TOKENS),),
        inner=(Size(value=s),),
        columns=(Size(value=r * size),),
    )
    return (
        norm("outer product norm", s * r, hidden, layer_norm=True),
        _linear("outer product in", s * r, hidden, 2 * size, bias=2 * size, matrices=2),
        _saving_product(product, s * r, 2 * size),
        _linear("outer product out", r * r, size * size, pair_hidden, bias=pair_hidden),
        residual("outer product residual", r * r, pair_hidden),
    )


def pair_operators(r: Scalar, hidden: Scalar, heads: Scalar, ratio: Scalar) -> tuple[Op, ...]:
    """Triangle updates along outgoing and incoming edges, attention around both ends, transition."""
    ends = ("outgoing", "incoming"), ("starting", "ending")
    multiplications = (op for end in ends[0] for op in _triangle_multiplication(end, r, hidden))
    attentions = (op for end in ends[1] for op in _triangle_attention(end, r, hidden, heads))
    return (*multiplications, *attentions, *transition("pair", r * r, hidden, ratio))


def _triangle_multiplication(end: str, r: Scalar, hidden: Scalar) -> tuple[Op, ...]:
    name, rows = f"triangle {end}", r * r
    product = Op(
        name=name,
        kind=Kind.PRODUCT,
        rows=(Size(value=r, split=TOKENS),),
        inner=(Size(value=r),),
        columns=(Size(value=r),),
        groups=(Size(value=hidden),),
    )
    sides, four = (Size(value=2 * hidden),), (Size(value=4 * hidden),)
    return (
        norm(f"{name} norm", rows, hidden, layer_norm=True),
        _linear(f"{name} in", rows, hidden, 4 * hidden, bias=4 * hidden, matrices=4),
        activation(f"{name} gates", rows, sides, four, 2.0),
        _saving_product(product, rows, 2 * hidden),
        norm(f"{name} product norm", rows, hidden, layer_norm=True),
        _linear(f"{name} out", rows, hidden, hidden, bias=hidden),
        *_gate_only(name, rows, hidden),
        residual(f"{name} residual", rows, hidden),
    )


def _triangle_attention(end: str, r: Scalar, hidden: Scalar, heads: Scalar) -> tuple[Op, ...]:
    name = f"triangle {end}"
    return (
        norm(f"{name} norm", r * r, hidden, layer_norm=True),
        _linear(f"{name} bias", r * r, hidden, heads),
        *_gated_attention(name, r * r, r, hidden, heads),
    )


def _gated_attention(name: str, rows: Scalar, keys: Scalar, hidden: Scalar, heads: Scalar) -> tuple[Op, ...]:
    looks = Heads(heads=heads, key_value_heads=heads, head_size=integral(hidden / heads), keys=keys, split=())
    return (
        _linear(f"{name} qkv", rows, hidden, 3 * hidden, matrices=3),
        core(f"{name} attention", rows, looks, dropout=False),
        *_gate(name, rows, hidden),
    )


def _gate(name: str, rows: Scalar, hidden: Scalar) -> tuple[Op, ...]:
    """The attention's result times a sigmoid of its input, the output projection, the residual."""
    return (
        *_gate_only(name, rows, hidden),
        _linear(f"{name} out", rows, hidden, hidden, bias=hidden),
        residual(f"{name} residual", rows, hidden),
    )


def _gate_only(name: str, rows: Scalar, hidden: Scalar) -> tuple[Op, ...]:
    """The gate reads the same input as the projections before it, which keep it."""
    width, both = (Size(value=hidden),), (Size(value=2 * hidden),)
    product = _linear(f"{name} gate", rows, hidden, hidden, bias=hidden)
    return (_without_saved(product), activation(f"{name} gating", rows, width, both, 2.0))


def _linear(
    name: str, rows: Scalar, inner: Scalar, columns: Scalar, bias: Scalar | None = None, matrices: int = 1
) -> Op:
    sizes: tuple[Sizes, Sizes] = (Size(value=inner),), (Size(value=columns),)
    return linear(name, rows, *sizes, input_split=TOKENS, bias=bias, matrices=matrices)


def _saving_product(product: Op, rows: Scalar, columns: Scalar) -> Op:
    """Both factors are kept for its backward pass."""
    factors = Saved(rows=(Size(value=rows, split=TOKENS),), columns=(Size(value=columns),))
    return dataclasses.replace(product, saved=(factors,))


def _without_saved(op: Op) -> Op:
    return dataclasses.replace(op, saved=())
