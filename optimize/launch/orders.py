"""Orders of schedules of one's own for PyTorch, which reads them from a file: a row of operations for each rank.

`2F0` is the forward pass of microbatch 0 on stage 2, `B` its backward pass; where weight gradients run apart, `I` and
`W`. Names: torch.distributed.pipelining.schedules, `_PipelineScheduleRuntime._load_csv`; torchtitan passes the path of
the file on (`parallelism.pipeline_parallel_schedule_csv`).
"""

from costmodel.graph import order
from costmodel.inputs import OWN_SCHEDULES, Plan

SUFFIX = ".csv"


def order_file(plan: Plan) -> str:
    """The name of the file."""
    return plan.schedule + SUFFIX


def order_rows(plan: Plan, batch: int) -> str:
    """The order of a plan's microbatches."""
    names = {"F": "F", "B": "I" if OWN_SCHEDULES[plan.schedule].splits else "B", "W": "W"}
    microbatches = batch // (plan.data * plan.microbatch)
    tasks = order(plan.schedule, plan.pipeline, microbatches, plan.virtual_stages)
    return "".join(",".join(f"{t.chunk}{names[t.kind]}{t.microbatch}" for t in row) + "\n" for row in tasks)
