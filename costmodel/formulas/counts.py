"""What one microbatch does on one accelerator: matmul shapes, FLOP, bytes moved, payloads. No hardware enters.

Counts have analytic truths (6ND, payload sums); times only have measurements. So they are apart.
"""

from costmodel.formulas.counted import AttentionCount, BlockCounts, MatmulCount, MemoryCount, OpCounts, SavedBytes
from costmodel.formulas.placement import reached
from costmodel.inputs import (
    LOGITS,
    MODULES,
    AttentionKernel,
    Block,
    Kind,
    Module,
    ModuleRow,
    Op,
    PlanPoint,
    Position,
    Role,
    Saved,
    Size,
    Sizes,
    Split,
    Workload,
    is_expert,
)
from costmodel.semantics import Scalar, Semantics, total

Shares = dict[Split, Scalar]


def counts(workload: Workload, point: PlanPoint, sem: Semantics) -> OpCounts:
    """Count everything that one microbatch of `workload` does on one accelerator under `point`."""
    shares = split_shares(point)
    tokens = point.microbatch * workload.sequence * shares[Split.CONTEXT]
    return OpCounts(
        blocks=tuple(_block(block, point, shares, workload.expert_imbalance, sem) for block in workload.blocks),
        microbatches=workload.batch / (point.data * point.microbatch),
        boundary_bytes=tokens * workload.hidden * point.precision.activation_bytes,
        tied=workload.tied,
        embeds_again=workload.embeds_again,
    )


def saved_bytes(op: Op, kept: Saved, workload: Workload, point: PlanPoint, sem: Semantics) -> Scalar:
    """Bytes of one tensor that an operator keeps of a microbatch on one accelerator, without recompute."""
    return _Counter(point, split_shares(point), workload.expert_imbalance, sem).kept(op, kept)


def payload_copies(op: Op, point: PlanPoint) -> Scalar:
    """What a collective carries over the elements that it names: of an exchange, as its dispatcher does."""
    return _sent(op, point) if op.kind == Kind.EXCHANGE else 1.0


def touches(op: Op, point: PlanPoint) -> tuple[Scalar, Scalar]:
    """Passes forward and backward of an operator that only moves data: of a loss those of its row too."""
    if op.arranges:
        return _arranged(op.touches_forward, op, point), _arranged(op.touches_backward, op, point)
    row, loss = point.loss, op.kind == Kind.LOSS
    return op.touches_forward + loss * row.touches_forward, op.touches_backward + loss * row.touches_backward


def _arranged(sorted_twice: Scalar, op: Op, point: PlanPoint) -> Scalar:
    r"""Passes in which tokens come into the order of their experts, or back, over all their $k$ copies.

    An all-to-all wants them in the order of ranks: each token is read once and its copies are written, $1 + 1/k$; where
    they arrive they are read and written again, in the order of a rank's own experts, and once more where narrow
    formats want the rows of an expert padded to whole blocks. Fused dispatchers and gathers put in order only what has
    arrived, and pad as they do so. Source: Megatron-LM, `transformer/moe/token_dispatcher.py` (permutations 1 and 2),
    `experts.py` (`quantization_padding`). Limit: more than one expert on a rank.
    """
    sorts, narrow = point.dispatcher.sorts, point.precision.at_8bit + point.precision.at_4bit
    return sorts * (sorted_twice + 2.0 * narrow) + (1 - sorts) * (1 + reached(point.expert, op.copies))


def single(op: Op, point: PlanPoint) -> Scalar:
    """1 where the passes of an operator that only moves data are as many in any software."""
    return op.single + (1 - op.single) * point.loss.single * (op.kind == Kind.LOSS)


def split_shares(point: PlanPoint) -> Shares:
    """What is left of a dimension after the plan has divided it: one share for each `Split`."""
    inverse_tensor = 1.0 / point.tensor
    return {
        Split.TENSOR: inverse_tensor,
        Split.CONTEXT: 1.0 / point.context,
        Split.EXPERT: 1.0 / point.expert,
        Split.EXPERT_TENSOR: 1.0 / point.expert_tensor,
        # rows of one expert: those of all ranks that hold other parts of its mesh, over all ranks
        Split.ROUTED: point.expert * point.expert_tensor * inverse_tensor / point.context,
        # rows outside tensor-parallel regions: divided under sequence parallelism only
        Split.SEQUENCE: (1 - point.sequence_parallel) + point.sequence_parallel * inverse_tensor,
    }


def _block(block: Block, point: PlanPoint, shares: Shares, imbalance: Scalar, sem: Semantics) -> BlockCounts:
    counter = _Counter(point, shares, imbalance, sem)
    by_kind = {kind: [op for op in block.ops if op.kind == kind] for kind in Kind}
    own, products = by_kind[Kind.MATMUL], by_kind[Kind.PRODUCT]
    heads = [op for op in own if op.name == LOGITS]
    moving = [op for op in block.ops if op.kind in _MOVING]
    syncs = [op for op in by_kind[Kind.SYNC] if op.forward]
    backward_syncs = [op for op in by_kind[Kind.SYNC] if op.backward]
    exchanges, gathers = by_kind[Kind.EXCHANGE], by_kind[Kind.GATHER]
    experts = [op for op in own + by_kind[Kind.LOOKUP] if is_expert(op)]
    activation_bytes, weighed = point.precision.activation_bytes, tuple(map(counter.matmul, own))
    return BlockCounts(
        name=block.name,
        position=block.position,
        syncs=len(syncs),
        backward_syncs=len(backward_syncs),
        exchanges=len(exchanges),
        gathers=len(gathers),
        repeats=block.repeats,
        forwards=block.forwards,
        matmuls=(*weighed, *map(counter.matmul, products)),
        attentions=tuple(map(counter.attention, by_kind[Kind.ATTENTION])),
        memories=tuple(map(counter.memory, moving)),
        sync_bytes=activation_bytes * total(map(counter.elements, syncs)),
        backward_sync_bytes=activation_bytes * total(map(counter.elements, backward_syncs)),
        exchange_bytes=activation_bytes * total(_sent(op, point) * counter.elements(op) for op in exchanges),
        exchange_spread=exchanges[0].spread if len(exchanges) else 1.0,
        exchange_copies=exchanges[0].copies if len(exchanges) else 1,
        experts=next((counter.size(op.groups) for op in own if is_expert(op)), 0.0),
        gather_bytes=activation_bytes * total(map(counter.elements, gathers)),
        parameters=total(map(counter.parameters, block.ops)),
        trained_parameters=total(op.trained * counter.parameters(op) for op in block.ops),
        expert_parameters=total(map(counter.matrix, experts)),
        trained_expert_parameters=total(op.trained * counter.matrix(op) for op in experts),
        matrix_parameters=total(counter.matrix(op) for op in own if not is_expert(op)),
        head_parameters=total(map(counter.matrix, heads)),
        trained_head_parameters=total(op.trained * counter.matrix(op) for op in heads),
        orthogonal_flop=total(op.trained * counter.orthogonal_flop(op) for op in own if not is_expert(op)),
        expert_orthogonal_flop=total(op.trained * counter.orthogonal_flop(op) for op in own if is_expert(op)),
        saved=_saved(block, counter),
        flowing_bytes=_flowing(own, weighed, sem),
        logits=total(map(counter.elements, by_kind[Kind.LOSS])),
    )


def _sent(op: Op, point: PlanPoint) -> Scalar:
    """Payload of an exchange over the tokens' copies: a gather carries the tokens of the whole group, each once, a
    fused dispatcher one copy to each accelerator that has experts of the token, which sends one sum back. Source:
    DeepEP, whose layout of a dispatch has one bit for each token and rank (`is_token_in_rank`).
    """
    row = point.dispatcher
    copied = 1 - row.once * (1 - reached(point.expert, op.copies))
    return row.sent * ((1 - row.gathering) * copied + row.gathering * point.expert / op.copies)


def _saved(block: Block, counter: "_Counter") -> SavedBytes:
    """What a block keeps; by module where the plan drops some, of layers."""
    ends = {"input": counter.saved(block, Role.INPUT), "core": counter.saved(block, Role.CORE)}
    if counter.point.modules is None or block.position != Position.LAYER:
        return SavedBytes(**ends, rest=counter.saved(block, Role.REST))
    modules = ModuleRow(**{name: counter.saved_in(block, Module(name)) for name in MODULES})
    return SavedBytes(**ends, rest=counter.saved_in(block, Module.NONE), modules=modules)


def _flowing(ops: list[Op], counted: tuple[MatmulCount, ...], sem: Semantics) -> Scalar:
    """Gradients at the widest point of a backward pass: when the product down from the activation function begins, all
    that the block saved is still there; later ones take the place of what they free. Without one, at its last product.

    Measured: PyTorch 2.15, `FSDPMemTracker`, layers of Llama 3 8B recomputed in full: 4.5 of the 31 hidden sizes of a
    token that are there beside the layer's input.
    """
    pairs = zip(ops, counted, strict=True)
    down = [count.operand_bytes for op, count in pairs for kept in op.saved if kept.module == Module.GATES]
    last = [count.operand_bytes for count in counted[-1:]]
    return sem.maximum(0.0, *(down if len(down) else last))


_MOVING = (Kind.MEMORY, Kind.NORM, Kind.ACTIVATION, Kind.LOSS, Kind.LOOKUP)


class _Counter:
    """The sizes of operators under one point. Holds no state of its own."""

    def __init__(self, point: PlanPoint, shares: Shares, imbalance: Scalar, sem: Semantics) -> None:
        self.point, self.shares, self.imbalance, self.sem = point, shares, imbalance, sem

    def inputs(self) -> "_Counter":
        """What products keep of their inputs: where they stay as they were gathered, rows are not divided again.

        Source: nanotron, `tensor_parallel/functional.py`, without `recompute_allgather`. Its calibration rows hold
        runs with and without: without a pipeline most are so, with one most are not (the cause is unknown).
        """
        whole = self.point.whole_inputs * self.sem.maximum(2 - self.point.pipeline, 0.0)
        sequence = whole + (1 - whole) * self.shares[Split.SEQUENCE]
        return _Counter(self.point, {**self.shares, Split.SEQUENCE: sequence}, self.imbalance, self.sem)

    def size(self, sizes: Sizes) -> Scalar:
        """Elements along one dimension on this rank; 1 for none."""
        return total(map(self._part, sizes)) if sizes else 1.0

    def _part(self, size: Size) -> Scalar:
        value = size.value
        for name in size.split:
            share = self.shares[name]
            if name == Split.TENSOR and size.limit is not None:
                share = self.sem.maximum(share, 1.0 / size.limit)
            value = value * share
        return value

    def rows(self, op: Op | Saved) -> Scalar:
        """Rows of a microbatch; those that arrive at experts are more on the busiest rank."""
        rows = self.point.microbatch * self.size(op.rows)
        return rows * self.imbalance if any(Split.ROUTED in size.split for size in op.rows) else rows

    def elements(self, op: Op) -> Scalar:
        return self.rows(op) * self.size(op.columns)

    def matmul(self, op: Op) -> MatmulCount:
        m, k, n, groups = self.rows(op), self.size(op.inner), self.size(op.columns), self.size(op.groups)
        weight = k * n * groups
        return MatmulCount(
            name=op.name,
            flop=2.0 * m * weight,
            operand_bytes=self.point.precision.activation_bytes * m * (k + n) * groups,
            weight_elements=weight,
            reciprocal_sizes=1.0 / m + 1.0 / k + 1.0 / n,
            trained=op.trained,
            module=op.module,
        )

    def attention(self, op: Op) -> AttentionCount:
        rows, keys, width = self.rows(op), self.size(op.columns), self.size(op.inner) * self.size(op.groups)
        activation_bytes, key_values = self.point.precision.activation_bytes, self.size(op.key_values)
        scores = self.density(op) * rows * keys * self.size(op.groups)
        both_ends = rows * (2.0 * width + key_values) * activation_bytes
        return AttentionCount(
            name=op.name,
            flop=4.0 * scores * self.size(op.inner),
            operand_bytes=both_ends,
            score_elements=scores,
            reciprocal_keys=1.0 / keys,
            uneven=self.uneven(op),
            ring_bytes=rows * key_values * activation_bytes,
            exchange_bytes=both_ends,
        )

    def density(self, op: Op) -> Scalar:
        """Share of the score matrix that is computed: unfused kernels compute what the mask then hides."""
        flash = self.point.attention.flash
        return flash * op.density + (1 - flash)

    def uneven(self, op: Op) -> Scalar:
        r"""$1 - 1/c$ under a causal mask, whose last rows see all keys; nothing where every row does (density 1).

        At most so under windows, and at most $(1/d - 1)(1 - 1/c)$ at densities between. Ranks that exchange heads hold
        whole sequences, and unfused kernels compute all of every row.
        """
        masked = self.point.attention.flash * self.sem.minimum(1.0, 1.0 / op.density - 1.0)
        return self.point.context_ring * masked * (1 - self.shares[Split.CONTEXT])

    def memory(self, op: Op) -> MemoryCount:
        moved = self.elements(op) * self.point.precision.activation_bytes
        forward, backward = touches(op, self.point)
        return MemoryCount(
            name=op.name,
            module=op.module,
            forward_bytes=forward * moved,
            backward_bytes=backward * moved,
            single=single(op, self.point),
        )

    def matrix(self, op: Op) -> Scalar:
        return self.size(op.inner) * self.size(op.columns) * self.size(op.groups)

    def orthogonal_flop(self, op: Op) -> Scalar:
        r"""$4 a^2 b + 2 a^3$ for each matrix of $a \le b$: $A = X X^T$, $B = c_1 A + c_2 A^2$ and $c_0 X + B X$.

        Each rank takes the part of a matrix that it holds for a matrix of its own (as in block-wise Muon).
        """
        inner, each = self.size(op.inner), self.size(op.columns) / op.matrices
        shorter = self.sem.minimum(inner, each)
        return 4.0 * shorter * self.matrix(op) + 2.0 * op.matrices * self.size(op.groups) * shorter**3

    def parameters(self, op: Op) -> Scalar:
        """Those of an operator: of an expert only what stands beside its matrix, which lies on a mesh of its own."""
        vectors = total(map(self._part, op.parameters))
        return self.matrix(op) + vectors if op.kind in (Kind.MATMUL, Kind.LOOKUP) and not is_expert(op) else vectors

    def saved(self, block: Block, role: Role) -> Scalar:
        return self._kept([(op, kept) for op in block.ops for kept in op.saved if kept.role == role])

    def saved_in(self, block: Block, module: Module) -> Scalar:
        """The outputs of one module, of what only a whole layer drops otherwise."""
        return self._kept([(op, k) for op in block.ops for k in op.saved if k.role == Role.REST and k.module == module])

    def _kept(self, pairs: list[tuple[Op, Saved]]) -> Scalar:
        return total(self.kept(op, kept) for op, kept in pairs)

    def kept(self, op: Op, kept: Saved) -> Scalar:
        if op.kind == Kind.MATMUL:
            return self.inputs().saved_input_bytes(kept, op.name)
        return self.saved_beside(kept, op.kind)

    def saved_beside(self, kept: Saved, kind: Kind) -> Scalar:
        """What operators save that are no products: inputs of activation functions may wait in 8 bits."""
        return self.saved_bytes(kept) * (self.point.gate_inputs if kind == Kind.ACTIVATION else 1.0)

    def saved_input_bytes(self, kept: Saved, name: str) -> Scalar:
        """Inputs of a product: of 8-bit ones they may wait in 8 bits (Transformer Engine), of the head they do not."""
        return self.saved_bytes(kept) * (1.0 if name == LOGITS else self.point.precision.saved_inputs)

    def saved_bytes(self, kept: Saved) -> Scalar:
        elements = self.rows(kept) * self.size(kept.columns) * self.size(kept.groups)
        size_bytes = kept.activations * self.point.precision.activation_bytes + kept.fixed_bytes
        return self._kernel_share(kept.attention) * elements * size_bytes

    def _kernel_share(self, attention: AttentionKernel) -> Scalar:
        flash = self.point.attention.flash
        return {AttentionKernel.ANY: 1.0, AttentionKernel.FLASH: flash, AttentionKernel.UNFUSED: 1 - flash}[attention]
