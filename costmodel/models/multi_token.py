"""Modules of multi-token prediction: a layer more for each further token that a model learns to predict.

Each joins the normed hidden states of the layers before it with the normed embeddings of the tokens one further on, in
one product, and ends in the model's own head with a loss of its own. Embedding and head are the model's: they are
looked up, multiplied and learnt from once more, and counted once as parameters. Source: DeepSeek-AI 2024 (arXiv
2412.19437), section 2.2; what stands in a module: Megatron-Core's `multi_token_prediction.py`.

Pipelines carry a module as one more layer behind the others, and its end beside the model's head; their last stage has
a copy of the embedding. Limit: the sum of both copies' gradients, once a step, takes no time.
"""

from costmodel.inputs import Block, Kind, Op, Position, Saved, Size, Split
from costmodel.models.pieces import SPREAD, TOKENS, head, linear, norm, sync
from costmodel.semantics import Scalar

MULTI_TOKEN = "multi-token layer"
"""The name of the block of modules."""


def modules(layer: tuple[Op, ...], tokens: Scalar, hidden: Scalar, vocabulary: Scalar, count: int) -> tuple[Block, ...]:
    """So many modules whose layers have the operators of `layer`: their layers, and the end of each."""
    ends = (
        Block(name=f"multi-token head {at + 1}", position=Position.LAST, ops=_end(tokens, hidden, vocabulary))
        for at in range(count)
    )
    return (Block(name=MULTI_TOKEN, ops=_joined(tokens, hidden) + layer, repeats=count), *ends)


def _joined(tokens: Scalar, hidden: Scalar) -> tuple[Op, ...]:
    """States and embeddings of the next tokens, each normed, in one product of both."""
    whole = (Size(value=hidden),)
    lookup = Op(
        name="module embedding",
        kind=Kind.MEMORY,
        rows=(Size(value=tokens, split=TOKENS),),
        columns=whole,
        touches_forward=2.0,
        touches_backward=2.0,
    )
    return (
        lookup,
        sync("module embedding sync", tokens, hidden, backward=False),
        norm("module embedding norm", tokens, hidden, layer_norm=False),
        norm("module state norm", tokens, hidden, layer_norm=False),
        linear("module projection", tokens, whole + whole, (Size(value=hidden, split=(Split.TENSOR,)),)),
        sync("module projection sync", tokens, hidden),
    )


def _end(tokens: Scalar, hidden: Scalar, vocabulary: Scalar) -> tuple[Op, ...]:
    """A norm, the model's own head without weights of its own, and a loss."""
    final = norm("module norm", tokens, hidden, layer_norm=False)
    _, edge, logits, loss = head((final,), tokens, hidden, vocabulary).ops
    shared = Op(
        name="shared head",
        kind=Kind.PRODUCT,
        rows=logits.rows,
        inner=logits.inner,
        columns=logits.columns,
        saved=(Saved(rows=(Size(value=tokens, split=SPREAD),), columns=logits.inner),),
    )
    return (final, edge, shared, loss)
