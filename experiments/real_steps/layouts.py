"""The models, the layouts that they are trained in, and both as what `costmodel.evaluate` takes."""

import dataclasses
from collections.abc import Sequence

from costmodel.inputs import Plan, Workload
from costmodel.models import decoder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder: RMS norms, learned positions, no biases, a head of its own."""

    name: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    vocabulary: int
    sequence: int
    batch: int  # sequences in a step
    gated: bool

    @property
    def workload(self) -> Workload:
        """The same model as the cost model has it."""
        sizes = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return decoder(**sizes, learned_positions=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """One run: a model, its degrees, recompute of whole layers or none, and microbatches that are accumulated."""

    model: Model
    data: int = 1
    tensor: int = 1
    microbatches: int = 1
    recompute: bool = False

    @property
    def devices(self) -> int:
        """Devices that it runs on."""
        return self.data * self.tensor

    @property
    def microbatch(self) -> int:
        """Sequences of one microbatch on one rank."""
        return self.model.batch // (self.data * self.microbatches)

    @property
    def name(self) -> str:
        """Short, as tables show it."""
        degrees = [f"{word}{n}" for word, n in (("data", self.data), ("tensor", self.tensor)) if n > 1]
        parts = [self.model.name, *(degrees or ["alone"])]
        parts += [f"accumulates{self.microbatches}"] * (self.microbatches > 1) + ["recomputes"] * self.recompute
        return " ".join(parts)

    @property
    def plan(self) -> Plan:
        """The plan that the program of `training.py` is: 32 bits, attention written out, nothing overlaps."""
        return Plan(
            data=self.data,
            tensor=self.tensor,
            microbatch=self.microbatch,
            zero_stage=0,
            recompute="full" if self.recompute else "none",
            overlap_data=False,
            overlap_context=False,
            precision="fp32",
            attention="unfused",
            fused_kernels=False,
        )


MODELS = (
    Model(name="1M", layers=4, hidden=128, heads=2, ffn=344, vocabulary=1024, sequence=256, batch=8, gated=True),
    Model(name="5M", layers=4, hidden=256, heads=4, ffn=1024, vocabulary=4096, sequence=128, batch=16, gated=False),
    Model(name="23M", layers=6, hidden=512, heads=8, ffn=1408, vocabulary=4096, sequence=256, batch=4, gated=True),
    Model(name="50M", layers=8, hidden=640, heads=10, ffn=2560, vocabulary=8192, sequence=128, batch=4, gated=False),
    Model(name="98M", layers=7, hidden=1024, heads=16, ffn=2816, vocabulary=4096, sequence=128, batch=4, gated=True),
)


def layouts(models: Sequence[Model] = MODELS) -> tuple[Layout, ...]:
    """Each model alone and on two devices, with and without recompute and accumulation."""
    return tuple(layout for model in models for layout in _of(model))


def _of(model: Model) -> tuple[Layout, ...]:
    return (
        Layout(model=model),
        Layout(model=model, recompute=True),
        Layout(model=model, microbatches=2),
        Layout(model=model, data=2),
        Layout(model=model, tensor=2),
        Layout(model=model, data=2, recompute=True),
        Layout(model=model, tensor=2, microbatches=2),
    )


QUICK = (
    Layout(model=MODELS[0]),
    Layout(model=MODELS[0], recompute=True),
    Layout(model=MODELS[0], data=2),
    Layout(model=MODELS[0], tensor=2, microbatches=2),
)
