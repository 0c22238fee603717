"""Turns of the devices of a pipeline, where a schedule is more than warm-up forwards and then one of each in turn."""

from collections.abc import Iterator

Turn = tuple[str, int]
"""A kind of operation (F forward, B backward, W weight gradient) and the model chunk that it runs on."""

Turns = Turn | tuple[Turn, ...]
"""One operation, or several that run as one: all their inputs before it, all their results after it."""


def v_order(stages: int, microbatches: int, _: int, device: int) -> Iterator[Turn]:
    """ZB-V: forwards until the first microbatch is back, then F, B and W of both chunks in turn; late W fill the end.

    Source: Qi et al. 2024 (Pipeline parallelism with controllable memory), figure of V-ZB; the order is that of
    PyTorch's `ScheduleZBVZeroBubble`, which leaves out what lies beyond the last microbatch.
    """
    down, back, to_end = device, 2 * stages - 1 - device, stages - device
    least = max(microbatches, 2 * stages - 1)
    turn = [("F", back), ("B", back), ("W", back)]
    steady = [("F", down), ("B", down), ("W", down), *turn]
    rounds = least - (2 * to_end - 1 + device)
    yield from [("F", down)] * (2 * to_end - 1) + [("F", back), ("F", down)] * device + turn * to_end
    yield from steady * rounds + [("B", down), ("W", down), *turn] * (least - to_end - device - rounds)
    yield from [("B", down), ("B", back)] * device + [("B", down), ("W", down)] * to_end
    yield from [("W", back)] * device + [("W", down)] * device


def dual_order(stages: int, microbatches: int, _: int, device: int) -> Iterator[Turns]:
    """DualPipe: half of the microbatches go down, half up; forwards of a way run together with backwards of the other.

    Source: DeepSeek-V3 (2024), section 3.2.1; the eight steps are those of github.com/deepseek-ai/DualPipe, `step`.
    """
    ahead = min(device, stages - 1 - device)
    chunks = (device, 2 * stages - 1 - device) if device < stages // 2 else (2 * stages - 1 - device, device)
    put_off: list[int] = []  # chunks whose weight gradients wait
    for word in _dual_words(ahead, stages // 2 - 1 - ahead, microbatches // 2 - stages + ahead + 1):
        turns: list[Turn] = []
        for kind, way in zip(word[::2], word[1::2], strict=True):
            chunk = chunks[int(way)]
            if kind == "b":
                put_off.append(chunk)
            turns += {"D": [("B", chunk), ("W", chunk)], "w": []}.get(kind, [(kind.upper(), chunk)])
        yield tuple(turns) if turns else ("W", put_off.pop(0))


def _dual_words(ahead: int, beyond: int, rounds: int) -> Iterator[str]:
    """Its steps, of F, D (both gradients), b (the input gradient alone) and w (the oldest weight gradient put off);
    way 0 is the one that comes to the device first.
    """
    yield from ["F0"] * (2 * beyond) + ["F0", "F1"] * (ahead + 1) + ["b1", "w0", "F1"] * beyond
    apart = ["F0", "D1", "F1D0"] if beyond == 0 else ["F0D1", "F1D0"]
    yield from apart + ["F0D1", "F1D0"] * (rounds - 1) + ["D1", "F1D0"] * beyond
    both = ["D1", "D0"] * (ahead + 1)
    yield from both[: ahead + 1] + [word.replace("D", "b") for word in both[ahead + 1 :]]
    yield from ["w0", "b0"] * beyond + ["w0"] * (ahead + 1)
