"""What can be asked on the command line: one small dataclass for each command, which tyro reads."""

import dataclasses
from typing import Annotated, Any, Literal, get_type_hints

from tyro.conf import DisallowNone, FlagCreatePairsOff, arg

from costmodel.inputs import SCHEDULES, Plan, options

_PLAN_HELP = {
    "data": "data-parallel degree; derived from --accelerators when not given",
    "tensor": "tensor-parallel degree; chosen when not given",
    "context": "ranks that share one sequence",
    "pipeline": "pipeline stages; chosen when not given",
    "expert": "ranks over which whole experts are divided",
    "expert_tensor": "ranks that share each expert",
    "virtual_stages": "chunks of layers on each stage, with --schedule interleaved",
    "microbatch": "sequences of one microbatch",
    "domain": "accelerators used of each innermost domain; the usable size of the tier",
    "data_shard": "ranks that share weights under ZeRO; all of data x context",
    "zero_stage": "0 nothing, 1 optimizer states, 2 and gradients, 3 and weights divided over data ranks",
    "sequence_parallel": "divide activations between tensor-parallel regions too",
    "context_kind": "how context ranks exchange keys and values",
    "schedule": "pipeline schedule",
    "recompute": "activations that the backward pass computes again",
    "recompute_share": "share of the blocks that --recompute applies to, 0 to 1",
    "stage_layers": "layers of each stage, where they differ",
    "overlap_data": "gradient and weight traffic beside compute",
    "overlap_tensor": "tensor-parallel traffic beside compute",
    "overlap_context": "context-parallel traffic beside compute",
    "overlap_expert": "tokens to experts and back beside compute",
    "overlap_pipeline": "stage-to-stage transfers beside compute",
    "precision": "number format of the matmuls",
    "gradient_dtype": "number format of the gradients",
    "state_dtype": "number format of the optimizer states",
    "optimizer": "optimizer",
    "attention": "fused or materialised attention",
    "fused_kernels": "fused norms and activations",
    "offload_weights": "share of the layers' weights in the second memory, 0 to 1",
    "offload_optimizer": "share of the optimizer states in the second memory, 0 to 1",
    "offload_activations": "share of the layers' activations in the second memory, 0 to 1",
}
_CHOICES: dict[str, Any] = {
    "zero_stage": Literal[0, 1, 2, 3],
    "context_kind": Literal["ring", "all_to_all"],
    "schedule": Literal[*SCHEDULES],
    "recompute": Literal[*options.RECOMPUTES],
    "precision": Literal[*options.PRECISIONS],
    "gradient_dtype": Literal[*options.DTYPE_BYTES],
    "state_dtype": Literal[*options.DTYPE_BYTES],
    "optimizer": Literal[*options.OPTIMIZERS],
    "attention": Literal[*options.ATTENTIONS],
}


def _plan_flags() -> type:
    """A dataclass with every field of `Plan`, None where it is not given."""
    hints = get_type_hints(Plan)
    fields = []
    for field in dataclasses.fields(Plan):
        kind = _CHOICES.get(field.name, hints[field.name]) | None
        default = f"(default: {_show(field.default)})" if _has_default(field) else ""
        several = "INT INT ..." if field.name == "stage_layers" else None
        settings = arg(help=_PLAN_HELP[field.name], help_behavior_hint=default, metavar=several)
        fields.append((field.name, Annotated[kind, settings, DisallowNone], dataclasses.field(default=None)))
    return dataclasses.make_dataclass("PlanFlags", fields, frozen=True, kw_only=True)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not None and field.name not in ("data", "tensor", "pipeline")


def _show(value: Any) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


PlanFlags = _plan_flags()

_Text = Annotated[str | None, DisallowNone, arg(help_behavior_hint="")]
_Count = Annotated[int | None, DisallowNone, arg(help_behavior_hint="")]
_Number = Annotated[float | None, DisallowNone, arg(help_behavior_hint="")]
_Whole = _Count
_Switch = Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explain:
    """What a training step costs under a plan, term by term, and why."""

    model: _Text = None
    """name of a model (`equipoise models`), or a TOML or JSON file of its dimensions"""
    cluster: _Text = None
    """name of a cluster (`equipoise clusters`), or a TOML or JSON file"""
    accelerators: _Count = None
    """how many are used; default: the product of the plan's degrees, or the cluster's own number"""
    sequence: _Count = None
    """tokens of one sequence; default: the model's"""
    batch: _Count = None
    """sequences of one step, over all accelerators; default: the model's"""
    plan: _Text = None
    """TOML or JSON file of a plan, or an answer that holds one; flags below override its fields"""
    against: _Text = None
    """plan file, cluster file or name of a cluster, to be put beside the first, largest difference first"""
    config: _Text = None
    """TOML file of these same fields (`model = "llama3-8b"`, `tensor = 8`, ...); flags override it"""
    out: _Text = None
    """directory for result.json and the figures, as PNG and SVG"""
    json: _Switch = False
    """print one JSON object and nothing else"""
    degrees: Annotated[PlanFlags, arg(name="")] = PlanFlags()  # pyright: ignore[reportInvalidTypeForm]

    def fields(self) -> dict[str, Any]:
        """What was given, by field, without what belongs to the command line alone."""
        own = {name: getattr(self, name) for name in ("model", "cluster", "accelerators", "sequence", "batch")}
        own |= {"plan": self.plan, "out": self.out} | dataclasses.asdict(self.degrees)  # pyright: ignore[reportArgumentType]
        return {name: value for name, value in own.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FindPlan:
    """The best plan of a model on a cluster: every legal plan evaluated, the best validated and explained."""

    model: _Text = None
    """name of a model (`equipoise models`), or a TOML or JSON file of its dimensions"""
    cluster: _Text = None
    """name of a cluster (`equipoise clusters`), or a TOML or JSON file"""
    accelerators: _Count = None
    """how many are used, all of them; default: the cluster's own number"""
    sequence: _Count = None
    """tokens of one sequence; default: the model's"""
    batch: _Count = None
    """sequences of one step, over all accelerators; default: the model's"""
    objective: _Text = None
    """step_s (default), time_s, cost_usd, energy_j, tokens_per_usd or tokens_per_j"""
    tokens: _Number = None
    """tokens to train, for time_s, cost_usd and energy_j"""
    fix: _Text = None
    """fields of the plan that are not searched, such as `tensor=8,schedule=one_f_one_b`"""
    only: _Text = None
    """only plans that a launcher can run: megatron, megatron-bridge, torchtitan, maxtext or deepspeed"""
    launch: _Text = None
    """print the best plan as the flags or the file of one of them; the table goes to standard error"""
    top: _Count = None
    """how many of the best plans are told; default: 10"""
    layers: _Switch = False
    """also place the layers of the best plans one by one: layers of each stage, recompute of each layer, microbatch"""
    processes: _Count = None
    """how many processes share the search, each started with the same command and its own --process"""
    process: _Count = None
    """which of them this one is, from 1"""
    coordinator: _Text = None
    """host:port of process 1, which the others reach it at"""
    wait: _Number = None
    """seconds to wait for the others before giving up; default: 60"""
    checkpoint: _Text = None
    """directory for what is finished: the same command again goes on from there"""
    config: _Text = None
    """TOML file of these same fields (`model = "llama3-8b"`, `top = 5`, ...); flags override it"""
    out: _Text = None
    """directory for result.json, plans.csv.gz and the figures, as PNG and SVG"""
    json: _Switch = False
    """print one JSON object and nothing else"""

    def fields(self) -> dict[str, Any]:
        """What was given, by field, without what belongs to the command line alone."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("config", "json")}
        return {name: value for name, value in own.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predict:
    """Time with an interval, and memory, of every row of a table in the columns of measurements/calibration.csv."""

    rows: _Text = None
    """CSV file of rows; may stand first, without the flag"""
    out: _Text = None
    """CSV file of predictions, one row for each, in order"""
    stack: _Text = None
    """TOML or JSON file with the table `stack` (as `calibrate` writes it), for all rows"""
    json: _Switch = False
    """print one JSON object and nothing else"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrate:
    """A cluster file adapted to measured runs (three suffice), or to what nccl-tests printed."""

    rows: _Text = None
    """CSV file of measured runs, or output of nccl-tests; may stand first, without the flag"""
    out: _Text = None
    """TOML file with the tables `cluster` and `stack`, which every command takes"""
    cluster: _Text = None
    """name or file of the cluster it was measured on; default: as the rows say. nccl-tests: needed"""
    json: _Switch = False
    """print one JSON object and nothing else"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Design:
    """The best cluster for a job and its plan, of any rates and of real parts, within what it may cost and draw."""

    model: _Text = None
    """name of a model (`equipoise models`), or a TOML or JSON file of its dimensions"""
    tokens: _Number = None
    """tokens to train"""
    jobs: _Text = None
    """TOML or JSON file of several jobs instead: `[[jobs]]` with model, tokens, batch, weight, deadline_days"""
    budget_usd: _Number = None
    """what the cluster may cost: its purchase, or with --rent what is spent while training"""
    rent: _Switch = False
    """the budget is rent; for clusters whose rental price is known"""
    power_mw: _Number = None
    """what it may draw at the facility's meter, cooling and losses included"""
    accelerators: _Count = None
    """how many it may have at most"""
    deadline_days: _Number = None
    """how long training may take"""
    objective: _Text = None
    """time_s (default), step_s, cost_usd, energy_j, tokens_per_usd or tokens_per_j"""
    sequence: _Count = None
    """tokens of one sequence; default: the model's"""
    batch: _Count = None
    """sequences of one step, over all accelerators; default: the model's"""
    cluster: _Text = None
    """cluster whose domains, latencies and software the designed one has; default: gb200-nvl72"""
    curves: _Text = None
    """file of what rates and sizes cost and draw; default: prices of early 2026"""
    fix: _Text = None
    """fields of the plan that are not searched, such as `tensor=8,schedule=one_f_one_b`"""
    sweep: _Text = None
    """limit that the frontier sweeps: budget_usd, power_w or accelerators; default: the first of them that is given"""
    seconds: _Number = None
    """when to stop, with the gap that is reached by then; default: 30"""
    seed: _Whole = None
    """of the starts of the descent; default: 0"""
    config: _Text = None
    """TOML file of these same fields (`model = "megatron-1t"`, `budget_usd = 500e6`, ...); flags override it"""
    out: _Text = None
    """directory for result.json and the figures, as PNG and SVG"""
    json: _Switch = False
    """print one JSON object and nothing else"""

    def fields(self) -> dict[str, Any]:
        """What was given, by field, without what belongs to the command line alone."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("config", "json")}
        own |= {"rent": self.rent or None}
        return {name: value for name, value in own.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Models:
    """The models that are known by name."""

    json: _Switch = False
    """print one JSON object and nothing else"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clusters:
    """The clusters that are known by name."""

    json: _Switch = False
    """print one JSON object and nothing else"""


EXAMPLES = {
    "explain": """
examples:
  equipoise explain --model llama3-8b --cluster h100 --accelerators 64
  equipoise explain --model llama3-70b --cluster h100 --tensor 8 --pipeline 4 --data 16 --sequence-parallel
  equipoise explain --model gpt3-175b --cluster a100-80gb --plan plan.json --recompute full --json
  equipoise explain --model llama3-70b --cluster h100 --accelerators 256 --against b200
  equipoise explain --config job.toml --out results/job""",
    "plan": """
examples:
  equipoise plan --model llama3-405b --cluster h100 --accelerators 16384 --batch 2048
  equipoise plan --model gpt3-175b --cluster a100-80gb --accelerators 4096 --fix tensor=8,schedule=one_f_one_b
  equipoise plan --model mixtral-8x7b --cluster h100 --accelerators 256 --objective cost_usd --tokens 1e12 --json
  equipoise plan --config job.toml --out results/plan
  equipoise plan --model llama3-70b --cluster h100 --accelerators 512 --only megatron --launch megatron > flags.sh""",
    "calibrate": """
examples:
  equipoise calibrate my_rows.csv --out my_cluster.toml
  equipoise calibrate all_reduce_perf.txt --cluster h100 --out my_cluster.toml
  equipoise explain --model llama3-8b --cluster my_cluster.toml""",
    "predict": """
examples:
  equipoise predict rows.csv --out predictions.csv
  equipoise predict rows.csv --out predictions.csv --stack my_cluster.toml --json""",
    "design": """
examples:
  equipoise design --model megatron-1t --budget-usd 500e6 --power-mw 50 --tokens 20e12
  equipoise design --model llama3-405b --power-mw 30 --tokens 15e12 --objective energy_j --out results/design
  equipoise design --model deepseek-v3 --budget-usd 100e6 --tokens 14.8e12 --objective cost_usd --json
  equipoise design --jobs jobs.toml --budget-usd 300e6""",
    "models": """
examples:
  equipoise models
  equipoise models --json""",
    "clusters": """
examples:
  equipoise clusters
  equipoise clusters --json""",
}
