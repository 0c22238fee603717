"""The trunk of AlphaFold2 (Jumper et al. 2021, supplement 1.6 and 1.7): Evoformer and extra-MSA blocks.

Two activations travel together: the MSA of s sequences x r residues, and the pairs of r x r residues. Products of
activations and attentions over rows and columns dominate; the parameters are few. Embedders, templates, the structure
module and the heads are not counted.
"""

from costmodel.inputs import Block, Workload
from costmodel.models.evoformer_pieces import (
    column_attention,
    global_column_attention,
    outer_product_mean,
    pair_operators,
    row_attention,
    transition,
)
from costmodel.semantics import Scalar


def evoformer(
    *,
    name: str = "evoformer",
    layers: Scalar,
    sequences: Scalar,
    residues: Scalar,
    batch: Scalar,
    hidden: Scalar = 256,
    pair_hidden: Scalar = 128,
    heads: Scalar = 8,
    pair_heads: Scalar = 4,
    ffn_ratio: Scalar = 4,
    outer_size: Scalar = 32,
    extra_layers: Scalar = 4,
    extra_sequences: Scalar = 1024,
    extra_hidden: Scalar = 64,
    recycles: Scalar = 0,
) -> Workload:
    """`recycles` counts the forward passes without a gradient that precede each trained one.

    A token is a residue. All rows are divided by the context degree (dynamic axial parallelism: count it as
    all_to_all); the tensor degree divides nothing here, because the weights are small. The stage boundary carries both
    activations.
    """
    pairs = pair_operators(residues, pair_hidden, pair_heads, ffn_ratio)
    main = (
        *row_attention(sequences, residues, hidden, pair_hidden, heads),
        *column_attention(sequences, residues, hidden, heads),
        *transition("msa", sequences * residues, hidden, ffn_ratio),
        *outer_product_mean(sequences, residues, hidden, pair_hidden, outer_size),
        *pairs,
    )
    extra = (
        *row_attention(extra_sequences, residues, extra_hidden, pair_hidden, heads),
        *global_column_attention(extra_sequences, residues, extra_hidden, heads),
        *transition("msa", extra_sequences * residues, extra_hidden, ffn_ratio),
        *outer_product_mean(extra_sequences, residues, extra_hidden, pair_hidden, outer_size),
        *pairs,
    )
    forwards = recycles + 1
    blocks = (
        Block(name="extra msa block", ops=extra, repeats=extra_layers, forwards=forwards),
        Block(name="evoformer block", ops=main, repeats=layers, forwards=forwards),
    )
    crossing = sequences * hidden + residues * pair_hidden
    return Workload(name=name, blocks=blocks, sequence=residues, batch=batch, hidden=crossing)
