"""Layers of each pipeline stage where they are not the same on all."""


def by_cost(layers: int, pipeline: int, head: float) -> tuple[int, ...]:
    """Layers of each stage where one closes as soon as the cost so far exceeds its share of the whole.

    Source: nanotron, `build_model` in models/base.py. Late stages may be left with the head alone, or with nothing.
    """
    held, stage = [0] * pipeline, 0
    share = (layers + head) / pipeline
    for layer in range(1, layers + 1):
        held[stage] += 1
        if layer > share * (stage + 1) and stage < pipeline - 1:
            stage += 1
    return tuple(held)


def stage_layers(layers: int, pipeline: int) -> tuple[int, ...]:
    """Embedding and head count as layers where that makes stages even, as in Megatron; else some have one more."""
    if (layers + 2) % pipeline == 0:
        each = (layers + 2) // pipeline
        return (each - 1, *(each for _ in range(pipeline - 2)), each - 1)
    each, more = divmod(layers, pipeline)
    return tuple(each + (1 <= i <= more if more < pipeline - 1 else i < more) for i in range(pipeline))
