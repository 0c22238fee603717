"""What the fuzzer damages: a valid text of each kind of file, and the words that read it."""

import json
from pathlib import Path

from tests.support import GOLDEN, ROOT
from tests.support.files.bad_inputs import CHIP, CLUSTER, MODEL, MOE
from tests.support.files.configs import CONFIGS
from tests.support.measured_rows import _ROW as ROW  # pyright: ignore[reportPrivateUsage]

SMALL = ("--model", "{model.toml}", "--cluster", "{cluster.toml}", "--accelerators", "64")
TINY = ("--model", "{model.toml}", "--cluster", "h100", "--accelerators", "8", "--fix", "context=1,schedule=gpipe")
_STACK = "[stack]\nmatmul_ceiling = 0.8\nhbm_ceiling = 0.9\nkernel_s = 2e-6\n"
_JOBS = '[[jobs]]\nmodel = "llama3-8b"\ntokens = 1e12\nweight = 2.0\n[[jobs]]\nmodel = "llama2-7b"\ntokens = 2e11\n'
_CONFIG = 'model = "llama3-8b"\ncluster = "h100"\naccelerators = 64\ntensor = 4\npipeline = 2\nrecompute = "full"\n'
_DESIGN = (
    'model = "llama3-8b"\ntokens = 1e12\nbudget_usd = 1e8\npower_mw = 5.0\nrent = false\nseconds = 3\n'
    'failures = "low"\nrepair_days = 3\nsweep = "budget_usd"\nfix = "tensor=8"\n'
)
_PRICED = CLUSTER + (
    "[prices]\nprice_usd = {low = 2e4, base = 3e4, high = 4e4}\nelectricity_usd_per_kwh = 0.08\nnetwork_share = 0.1\n"
    "accelerator_failure_s = 2e8\nrestart_s = 600\ncarbon_g_per_j = 1e-4\n"
)
_JSON_CLUSTER = {
    "accelerators": 64, "accelerator": "h100",
    "tiers": [{"size": 8, "bandwidth_gb_per_s": 450, "latency_us": 2}, {"bandwidth_gbit_per_s": 400, "latency_us": 3}],
}  # fmt: skip
_DEVIATIONS = (
    '[cluster]\naccelerator = "h100"\naccelerators = 64\n[[cluster.tiers]]\nbandwidth_gb_per_s = 50\nlatency_us = 2\n'
    '[stack]\nsoftware = "fsdp"\nmatmul_ceiling = 0.8\n'
)
_OWN = """import costmodel


def mine():
    return costmodel.load_workload("llama3-8b", batch=64)


costmodel.register_model("fuzz-mine", mine)
"""
NCCL = """# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728
#       size         count      type   redop    root     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    32.10   32.67   57.17      0
   134217728      33554432     float     sum      -1   560.20  239.59  419.28      0
"""
_PLAN = {"data": 16, "tensor": 4, "pipeline": 1, "microbatch": 1, "schedule": "one_f_one_b", "recompute": "none"}
_KERNELS = (
    "kind,op,dtype,shape_or_bytes,n_devices,nodes,value,unit\n"
    "collective,all_reduce,bf16,1048576,8,1,30,us\ncollective,all_reduce,bf16,134217728,8,1,560,us\n"
    "matmul,matmul,bf16,4096x4096x4096,1,1,600,TFLOP/s\n"
)
_SCRIPT = """#!/bin/bash
NODES=4
TP=${TP:-4}
PP=$((NODES / 2))
MODEL_ARGS="--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336 --swiglu
  --seq-length 4096 --vocab-size 128256"
ARGS=(--tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} --micro-batch-size 2)
ARGS+=(--global-batch-size=512 --bf16 --use-distributed-optimizer)
torchrun --nproc_per_node 8 --nnodes $NODES pretrain_gpt.py ${MODEL_ARGS} "${ARGS[@]}"
"""
_TITAN = """[model]
name = "llama3"
flavor = "8B"

[training]
local_batch_size = 2
seq_len = 4096

[parallelism]
tensor_parallel_degree = 4
pipeline_parallel_degree = 2
data_parallel_shard_degree = -1
pipeline_parallel_schedule = "1F1B"

[activation_checkpoint]
mode = "full"
"""


def rows() -> str:
    """Two measured runs."""
    other = ROW | {"tp": "8", "dp": "8", "measured_step_s": "3.1", "id": "b"}
    header = [*ROW, "measured_step_s", "id"]
    return "\n".join([",".join(header), *(",".join(each.get(n, "") for n in header) for each in (ROW, other)), ""])


def _plans() -> dict[str, tuple[str, ...]]:
    own, alone = ("explain", "--model", "llama3-8b", "--cluster", "h100"), ("explain", "--cluster", "h100")
    alone = (*alone, "--accelerators", "512", "--plan")
    written = {path.name: path.read_text() for path in sorted((GOLDEN / "launch").iterdir())}
    models = {name: "deepseek-v3" if "experts" in name else "llama3-70b" for name in written}
    return {
        "plan.json": (json.dumps(_PLAN, indent=1), *own, "--plan", "{plan.json}"),
        "plan.toml": ("data = 16\ntensor = 4\npipeline = 1\n", *own, "--plan", "{plan.toml}"),
        "against.toml": ("data = 16\ntensor = 4\npipeline = 1\n", *own, "--against", "{against.toml}"),
        **{f"{n}": (text, "explain", "--model", models[n], *alone[1:], f"{{{n}}}") for n, text in written.items()},
        **{f"alone/{n}": (text, *alone, f"{{alone/{n}}}") for n, text in written.items()},
        "train.sh": (_SCRIPT, "explain", "--cluster", "h100", "--plan", "{train.sh}"),
        "titan.toml": (_TITAN, *own, "--accelerators", "64", "--plan", "{titan.toml}"),
    }


def _models() -> dict[str, tuple[str, ...]]:
    explain = ("explain", *SMALL)
    moe = MODEL.replace("ffn = 256\n", "ffn = 256\n" + MOE + "top_k = 2\n")
    table = {line.split(" = ")[0]: int(line.split(" = ")[1]) for line in MODEL.splitlines()}
    words = ("--cluster", "h100", "--accelerators", "64", "--sequence", "1024", "--batch", "64")
    return {
        "model.toml": (MODEL, *explain),
        "moe/model.toml": (moe, *explain),
        "model.json": (json.dumps(table, indent=1), "explain", "--model", "{model.json}", *SMALL[2:]),
        **{
            f"{name}/config.json": (
                json.dumps(config, indent=1),
                "explain",
                "--model",
                f"{{{name}/config.json}}",
                *words,
            )
            for name, config in CONFIGS.items()
        },
    }


def _clusters() -> dict[str, tuple[str, ...]]:
    explain = ("explain", *SMALL)
    words = ("explain", "--model", "llama3-8b", "--cluster")
    curves = (ROOT / "costmodel/data/curves.toml").read_text()
    few = ("--tokens", "1e9", "--budget-usd", "1e7", "--model", "llama3-8b")
    return {
        "cluster.toml": (CLUSTER, *explain),
        "chip/cluster.toml": (CHIP, *explain),
        "priced/cluster.toml": (_PRICED, *explain),
        "cluster.json": (json.dumps(_JSON_CLUSTER, indent=1), *words, "{cluster.json}"),
        "calibrated.toml": (_DEVIATIONS, *words, "{calibrated.toml}"),
        "curves.toml": (curves, "design", *few, "--curves", "{curves.toml}"),
    }


def seeds() -> dict[str, tuple[str, ...]]:
    """Texts of each kind of file, and the words that read it."""
    stack = ("--out", "{out.csv}", "--stack")
    return {
        **_plans(),
        **_models(),
        **_clusters(),
        "job.toml": (_CONFIG, "explain", "--config", "{job.toml}"),
        "plan/job.toml": (_CONFIG.split("tensor")[0] + "top = 3\n", "plan", "--config", "{plan/job.toml}"),
        "design/job.toml": (_DESIGN, "design", "--config", "{design/job.toml}"),
        "jobs.toml": (_JOBS, "design", "--jobs", "{jobs.toml}", "--budget-usd", "1e8"),
        "own.py": (_OWN, "explain", "--with", "{own.py}", "--model", "llama3-8b", "--cluster", "h100"),
        "stack.toml": (_STACK, "predict", "{rows.csv}", *stack, "{stack.toml}"),
        "stacks/calibrated.toml": (_DEVIATIONS, "predict", "{rows.csv}", *stack, "{stacks/calibrated.toml}"),
        "rows.csv": (rows(), "predict", "{rows.csv}", "--out", "{out.csv}"),
        "explained/rows.csv": (rows(), "predict", "{explained/rows.csv}", "--explain", "2"),
        "calibrated/rows.csv": (rows(), "calibrate", "{calibrated/rows.csv}", "--out", "{out.toml}"),
        "nccl.txt": (NCCL, "calibrate", "{nccl.txt}", "--cluster", "h100", "--out", "{out.toml}"),
        "kernels.csv": (_KERNELS, "calibrate", "{kernels.csv}", "--cluster", "h100", "--out", "{out.toml}"),
    }


BESIDE = {"model.toml": MODEL, "cluster.toml": CLUSTER, "rows.csv": rows()}
"""Files that stand beside, whole."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "explain": ("explain", *SMALL),
    "plan": ("plan", *TINY),
    "design": ("design", "--model", "{model.toml}", "--tokens", "1e9", "--budget-usd", "3e5", "--accelerators", "8"),
    "predict": ("predict", "{rows.csv}", "--out", "{out.csv}"),
    "calibrate": ("calibrate", "{rows.csv}", "--out", "{out.toml}"),
    "measure": ("measure", "--seconds", "1"),
    "models": ("models",),
    "clusters": ("clusters",),
}
"""A valid line of each command, to which a flag is added."""


def file_name(path: str) -> str:
    """The name under which a kind of file is written."""
    return Path(path).name
