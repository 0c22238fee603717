"""Recommendation models (DLRM, Naumov et al. 2019): embedding tables, products of all pairs of features, two MLPs."""

from costmodel.inputs import Block, Kind, Op, Position, Saved, Size, Split, Workload
from costmodel.models.pieces import activation, linear
from costmodel.semantics import Scalar

TABLES = (Split.EXPERT,)  # the rows of the tables are divided over the mesh of experts
SAMPLES = (Split.CONTEXT,)


def dlrm(
    *,
    name: str = "dlrm",
    tables: tuple[Scalar, ...],
    hidden: Scalar,
    dense_features: Scalar,
    bottom: tuple[Scalar, ...],
    top: tuple[Scalar, ...],
    batch: Scalar,
    lookups: Scalar = 1,
) -> Workload:
    """`tables` are the rows of each table, all of width `hidden`; `bottom` and `top` the widths of the MLPs' layers.

    A sequence is one sample, with `lookups` rows summed in each table. `bottom` ends with `hidden`; its output and the
    rows are the features. The model is one layer to a pipeline. Gradients of tables are counted as dense ones.
    """
    features = len(tables) + 1
    pairs = features * (features - 1) // 2
    ops = (
        *_mlp("bottom", dense_features, bottom),
        _lookup(tables, hidden, lookups),
        _exchange(len(tables) * hidden),
        _interaction(features, hidden),
        *_mlp("top", hidden + pairs, top),
    )
    width = (Size(value=1),)
    loss = Op(
        name="loss",
        kind=Kind.LOSS,
        rows=(Size(value=1, split=SAMPLES),),
        columns=width,
    )
    blocks = (Block(name="model", ops=ops), Block(name="loss", position=Position.LAST, ops=(loss,)))
    return Workload(name=name, blocks=blocks, sequence=1, batch=batch, hidden=features * hidden)


def _lookup(tables: tuple[Scalar, ...], hidden: Scalar, lookups: Scalar) -> Op:
    return Op(
        name="tables",
        kind=Kind.LOOKUP,
        rows=(Size(value=len(tables) * lookups, split=SAMPLES),),
        inner=tuple(Size(value=rows, split=TABLES) for rows in tables),
        columns=(Size(value=hidden),),
        touches_forward=2.0,  # read the rows, write their sums
        touches_backward=3.0,  # read the gradients, read and write the rows
    )


def _exchange(elements: Scalar) -> Op:
    """The sums of rows travel from the tables' ranks to the samples' ranks, and their gradients back."""
    rows, columns = (Size(value=1, split=SAMPLES),), (Size(value=elements),)
    return Op(name="table exchange", kind=Kind.EXCHANGE, rows=rows, columns=columns)


def _interaction(features: Scalar, hidden: Scalar) -> Op:
    """The products of every two features of a sample; both factors are the same kept tensor."""
    rows = (Size(value=1, split=SAMPLES),)
    return Op(
        name="interaction",
        kind=Kind.PRODUCT,
        rows=(Size(value=features, split=SAMPLES),),
        inner=(Size(value=hidden),),
        columns=(Size(value=features),),
        saved=(Saved(rows=rows, columns=(Size(value=features * hidden),)),),
    )


def _mlp(name: str, inputs: Scalar, widths: tuple[Scalar, ...]) -> tuple[Op, ...]:
    """Linear layers with biases and an activation after each."""
    ops: list[Op] = []
    for index, (before, after) in enumerate(zip((inputs, *widths), widths, strict=False)):
        width = (Size(value=after),)
        product = linear(f"{name} {index + 1}", 1, (Size(value=before),), width, input_split=SAMPLES, bias=after)
        ops += [product, activation(f"{name} activation {index + 1}", 1, width, width, 1.0)]
    return tuple(ops)
