"""What a launch format is: how a plan is written in it and read back, and what of a plan it cannot say.

A framework's options are a dictionary of its own names to values (`Settings`); `text.py` turns them into text and
back. What its launcher can be told is a table of alternatives: allowed values by field of `Plan`. Fields of no
alternative, other than the degrees, keep their defaults, so that a field that is added later is refused until a
framework says how it writes it.
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from costmodel.inputs import Cluster, Kind, Module, Op, Plan, Workload, is_expert
from costmodel.specs import SpecError, show
from optimize.launch.dimensions import Dimensions

Settings = dict[str, Any]
Alternative = Mapping[str, Collection[Any]]

FREE = (
    "data", "tensor", "context", "pipeline", "expert", "expert_tensor", "virtual_stages", "microbatch", "domain",
    "data_shard", "stage_layers", "recompute_share",
)  # fmt: skip
"""Fields that every framework takes, as far as its own rules go."""
FACTS = ("batch", "sequence", "accelerators", "layers")
T = TypeVar("T")
MOST_LISTED = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What is launched."""

    plan: Plan
    batch: int  # sequences
    sequence: int
    layers: int
    has_experts: bool
    accelerators: int
    slice_size: int  # accelerators that the inner network joins
    machine: str = "gpu"  # or tpu
    model: Dimensions | None = None  # None: not a model whose flags can be written


def router_groups(job: Job) -> tuple[int, int] | None:
    """In how many groups experts lie, and how many of them a token chooses; None where it chooses among all.

    A group is the experts of one innermost domain of those over which one copy of all lies, where experts divide so.
    """
    model = job.model or {}
    few, experts = model.get("expert_groups"), model.get("experts", 1)
    if few is None:
        return None
    domains = max(few, -(-job.plan.expert * job.plan.expert_tensor // job.slice_size))
    return next((count for count in range(domains, experts + 1) if experts % count == 0), experts), few


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """What the reader of a launch file may know from elsewhere."""

    layers: int | None = None
    accelerators: int | None = None
    has_experts: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """What a launch file says. `unread` are its options that may change the cost and that no field stands for."""

    framework: str
    fields: Mapping[str, Any]
    facts: Mapping[str, int]  # batch, sequence, accelerators, layers: where the file says them
    unread: tuple[str, ...]
    model: Dimensions | str = "the file does not say the model"  # or why it could not be read


class Reader:
    """The options of one file. A look-up that is not there gives its default. `shown` are names for messages."""

    def __init__(
        self, settings: Mapping[str, Any], where: str, shown: Mapping[str, str] | None = None, text: str = ""
    ) -> None:
        self.settings, self.where, self.used, self.shown, self.text = settings, where, set[str](), shown or {}, text
        self.more: list[str] = []  # words that may hold more options

    def sharing(self, other: "Reader") -> "Reader":
        """Itself, so that what it reads counts as read in the other one too."""
        self.used, self.text, self.more = other.used, other.text, other.more
        return self

    def has(self, name: str) -> bool:
        """Whether the file gives the option."""
        self.used.add(name)
        return self.settings.get(name) is not None

    def count(self, name: str, default: T = None) -> int | T:
        """An integer >= 1."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.wrong(name, "an integer >= 1")
        return value

    def one(self, name: str) -> int:
        """A degree: 1 where it is not given."""
        return self.count(name, 1)

    def few(self, name: str, default: int = 1, least: int = 1) -> int:
        """A number of things that are listed one by one: stages, layers."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_LISTED:
            raise self.wrong(name, f"an integer from {least} to {MOST_LISTED}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """Yes or no."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, str) and value.startswith("$"):
            self.more += (
                [] if value.endswith(".py") else [value]
            )  # a flag without a value, and behind it a variable that is not known
            return True
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def word(self, name: str, meanings: Mapping[Any, T], default: T) -> T:
        """What a word stands for."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, list | dict) or value not in meanings:
            raise self.wrong(name, f"one of {', '.join(map(str, meanings))}")
        return meanings[value]

    def number(self, name: str) -> float | None:
        """A number > 0 of a size that a batch may have."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise self.wrong(name, "a number > 0 and < 1e9")
        return float(value)

    def raw(self, name: str) -> Any:
        """The value as it stands, or None."""
        self.used.add(name)
        return self.settings.get(name)

    def wrong(self, name: str, expected: str) -> SpecError:
        """The error of an option that cannot be right."""
        shown = self.shown.get(name, name)
        said = f"{self.where}: `{shown}` is {show(self.settings.get(name))}; expected {expected}"
        return SpecError(f"{said}{line_of(self.text, shown)}")

    def left(self, neutral: frozenset[str]) -> tuple[str, ...]:
        """Names that were neither read nor are known to leave the cost of a step alone: alone, or by their section, or
        by how they begin (`log-`)."""
        begins = tuple(name for name in neutral if name.endswith("-"))
        left = (name for name in self.settings if name not in self.used and name not in neutral)
        left = (name for name in left if not begins or not name.startswith(begins))
        return (*(name for name in left if f"{name.split('.')[0]}." not in neutral), *self.more)


def line_of(text: str, name: str) -> str:
    """` (line 12)`: where a text first has an option; nothing where it has not."""
    last = re.escape(name.rpartition(".")[2]).replace("_", "[-_]").replace(r"\-", "[-_]")
    found = re.search(rf"^[^#\n]*?(?<![\w-])(?:--)?{last}(?![\w-])", text, re.MULTILINE)
    return f" (line {text.count(chr(10), 0, found.end()) + 1})" if found else ""


def divided(reader: Reader, name: str, total: int, by: int, what: str) -> int:
    """`total / by`, which must be whole; `name` is the option that is to blame."""
    quotient, rest = divmod(total, by)
    if rest or not quotient:
        raise SpecError(
            f"{reader.where}: `{reader.shown.get(name, name)}` gives {total} for {what}; expected a multiple of {by}"
        )
    return quotient


@dataclasses.dataclass(frozen=True, kw_only=True)
class Framework:
    """One launch format.

    `rules` yields what a plan asks for beyond the table of alternatives, `machine_rules` what it asks of a machine
    (`gpu` or `tpu`). `version` is the one whose names and rules these are. `fields` reads fields of `Plan` and facts
    (`FACTS`); `copies` stands for `data_shard` where a file counts the groups instead of their ranks.
    """

    name: str
    title: str
    version: str
    file: str  # its usual name
    alternatives: tuple[Alternative, ...]
    settings: Callable[[Job], Settings]
    fields: Callable[[Reader, Known], dict[str, Any]]
    rules: Callable[[Plan, Workload | None], Iterator[str]]
    dump: Callable[[Settings, tuple[str, ...]], str]
    parse: Callable[[str], list[tuple[int, Settings]]]  # what a text may mean, with lines
    signs: frozenset[str]  # options of degrees and batches: a file has one at least
    hint: str  # a regular expression of lines that are written for this framework, whether or not they can be read
    about_model: frozenset[str]  # options of the model, the data and the logs: read past
    model: Callable[[Mapping[str, Any]], Dimensions | str] = lambda settings: "the file does not say the model"
    elsewhere: Callable[[Plan], Iterable[str]] = lambda plan: ()  # what is set outside the file, in words
    machine_rules: Callable[[Plan, Workload | None, str], Iterable[str]] = lambda plan, workload, machine: ()
    apart: Callable[[Alternative], Iterable[Alternative]] = lambda table: (table,)
    """An alternative as several of which `rules` refuse fewer plans, for models with experts."""

    def searched(self, workload: Workload) -> list[Alternative]:
        """The alternatives as they are searched for a model."""
        if not has_experts(workload):
            return list(self.alternatives)
        return [own for table in self.alternatives for own in self.apart(table)]

    def cannot(self, plan: Plan, workload: Workload | None = None, cluster: Cluster | None = None) -> tuple[str, ...]:
        """What of a plan this framework cannot be told; empty for one that reads back as it was written.

        Without a cluster nothing is asked of the machine.
        """
        plan = canonical(plan)
        outside = min((tuple(_outside(plan, alternative)) for alternative in self.alternatives), key=len)
        told = (
            f"`{name}` is {show(getattr(plan, name))}; {self.title} can be told {' or '.join(map(_shown, allowed))}"
            for name, allowed in outside
        )
        machine = () if cluster is None else self.machine_rules(plan, workload, machine_of(cluster))
        return (*told, *self.rules(plan, workload), *machine)

    def can(self, plan: Plan, workload: Workload | None = None, cluster: Cluster | None = None) -> bool:
        """Whether it can be told all of a plan: `cannot` without the words."""
        plan = canonical(plan)
        told = any(next(_outside(plan, alternative), None) is None for alternative in self.alternatives)
        machine = () if cluster is None else self.machine_rules(plan, workload, machine_of(cluster))
        return told and next(self.rules(plan, workload), None) is None and next(iter(machine), None) is None


def _outside(plan: Plan, alternative: Alternative) -> Iterator[tuple[str, Collection[Any]]]:
    """Fields of a plan that an alternative does not allow, and what it allows."""
    for name, default in _DEFAULTS.items():
        if name in FREE and name not in alternative:
            continue
        allowed = alternative.get(name, (default,))
        if getattr(plan, name) not in allowed:
            yield name, allowed


def _shown(value: Any) -> str:
    return "none" if value is None else show(value)


def machine_of(cluster: Cluster) -> str:
    """`tpu` where the accelerators are TPUs, `gpu` elsewhere."""
    return "tpu" if cluster.accelerator.name.startswith("tpu") else "gpu"


def has_experts(workload: Workload) -> bool:
    """Whether any layer chooses among experts."""
    return any(map(is_expert, _operators(workload)))


def has_sinks(workload: Workload) -> bool:
    """Whether heads have a score beside those of their keys (gpt-oss)."""
    return any(op.kind == Kind.ATTENTION and op.parameters for op in _operators(workload))


def has_expert_biases(workload: Workload) -> bool:
    """Whether products of experts have biases."""
    return any(is_expert(op) and op.parameters for op in _operators(workload))


def has_latents(workload: Workload) -> bool:
    """Whether heads come out of low-rank projections (DeepSeek)."""
    return any(op.module == Module.LATENT for op in _operators(workload))


def _operators(workload: Workload) -> Iterator[Op]:
    return (op for block in workload.blocks for op in block.ops)


def canonical(plan: Plan) -> Plan:
    """The same plan with the fields that change nothing at their defaults: what a launch file reads back as."""
    changes: dict[str, Any] = {}
    for name, idle in _IDLE.items():
        if idle(plan):
            changes[name] = _DEFAULTS[name]
    if plan.data_shard == plan.data * plan.context:
        changes["data_shard"] = None
    if plan.stage_layers is not None and len(set(plan.stage_layers)) == 1:
        changes["stage_layers"] = None if plan.stage_layers[0] % plan.virtual_stages == 0 else plan.stage_layers
    if plan.recompute == "none" or plan.recompute_share == 0:
        changes |= {"recompute": "none", "recompute_share": 1.0}
    if plan.data * plan.context == 1 and plan.zero_stage < 3:
        changes["zero_stage"] = _DEFAULTS["zero_stage"]
    return dataclasses.replace(plan, **changes)


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Plan)}
_IDLE: dict[str, Callable[[Plan], bool]] = {
    "sequence_parallel": lambda plan: plan.tensor == 1,
    "overlap_data": lambda plan: plan.data * plan.context == 1,
    "overlap_tensor": lambda plan: plan.tensor == 1,
    "overlap_context": lambda plan: plan.context == 1 or plan.context_kind == "all_to_all",
    "context_kind": lambda plan: plan.context == 1,
    "overlap_expert": lambda plan: plan.expert * plan.expert_tensor == 1,
    "overlap_pipeline": lambda plan: plan.pipeline == 1,
}
