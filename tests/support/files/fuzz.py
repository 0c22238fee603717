"""Malformed inputs, seeded: what people and programs write, damaged in one or several places.

A case is the words of a command, in which `{name}` stands for a file that it brings. Seeds are valid; a damage is of
bytes (cut, noise, other encodings), of lines (twice, gone, elsewhere) or of values (nan, negative, huge, other types).
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from costmodel.inputs import Plan
from costmodel.specs import load_cluster, load_workload
from optimize.launch import FRAMEWORKS, launch
from tests.support.files.bad_inputs import CHIP, CLUSTER, MODEL, MOE
from tests.support.measured_rows import _ROW as ROW  # pyright: ignore[reportPrivateUsage]

Case = tuple[list[str], dict[str, bytes]]
SMALL = ("--model", "{model.toml}", "--cluster", "{cluster.toml}", "--accelerators", "64")
_LLAMA = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "model_type": "llama",
    "max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "tie_word_embeddings": False, "vocab_size": 128256, "hidden_act": "silu", "attention_bias": False,
}  # fmt: skip
_STACK = "[stack]\nmatmul_ceiling = 0.8\nhbm_ceiling = 0.9\nkernel_s = 2e-6\n"
_JOBS = '[[jobs]]\nmodel = "llama3-8b"\ntokens = 1e12\nweight = 2.0\n[[jobs]]\nmodel = "llama2-7b"\ntokens = 2e11\n'
_CONFIG = 'model = "llama3-8b"\ncluster = "h100"\naccelerators = 64\ntensor = 4\npipeline = 2\nrecompute = "full"\n'
NCCL = """# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728
#       size         count      type   redop    root     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    32.10   32.67   57.17      0
   134217728      33554432     float     sum      -1   560.20  239.59  419.28      0
"""
_PLAN = {"data": 16, "tensor": 4, "pipeline": 1, "microbatch": 1, "schedule": "one_f_one_b", "recompute": "none"}
_KERNELS = (
    "kind,op,dtype,shape_or_bytes,n_devices,nodes,value,unit\n"
    "collective,all_reduce,bf16,1048576,8,1,30,us\ncollective,all_reduce,bf16,134217728,8,1,560,us\n"
)
VALUES = (
    "-1", "0", "nan", "inf", "-inf", "1e400", "1e308", "1e-320", '""', "[]", "{}", "true", "null", "None", '"eight"',
    "8.5", "1" + "0" * 400, "0x10", "1_000", "[1, 2]", '"\\u0000"', "'", '"', "$(rm x)", "../../etc/passwd",
    "2026-01-01",    "٣", "é" * 50, "=8", "\t", "9" * 20, "-0.0", "8,8", "%s%n", "__import__('os')",
)  # fmt: skip


def _rows() -> str:
    other = ROW | {"tp": "8", "dp": "8", "measured_step_s": "3.1", "id": "b"}
    header = [*ROW, "measured_step_s", "id"]
    return "\n".join([",".join(header), *(",".join(each.get(n, "") for n in header) for each in (ROW, other)), ""])


def _launch_files() -> dict[str, str]:
    job = load_workload("llama3-8b", batch=128), load_cluster("h100", 64)
    plan = Plan(data=16, tensor=4, pipeline=1, sequence_parallel=True)
    return {framework.file: launch(name, plan, *job) for name, framework in FRAMEWORKS.items()}


def seeds() -> dict[str, tuple[str, ...]]:
    """Texts of each kind of file, and the words that read it (`explain` unless they say otherwise)."""
    launchers = _launch_files()
    plans = {"plan.json": json.dumps(_PLAN, indent=1), "plan.toml": "data = 16\ntensor = 4\npipeline = 1\n"} | launchers
    explain = ("explain", *SMALL)
    own = ("explain", "--model", "llama3-8b", "--cluster", "h100")
    return {
        **{name: (text, *own, "--plan", f"{{{name}}}") for name, text in plans.items()},
        "model.toml": (MODEL, *explain),
        "moe/model.toml": (MODEL.replace("ffn = 256\n", "ffn = 256\n" + MOE + "top_k = 2\n"), *explain),
        "config.json": (json.dumps(_LLAMA, indent=1), "explain", "--model", "{config.json}", "--cluster", "h100"),
        "cluster.toml": (CLUSTER, *explain),
        "chip/cluster.toml": (CHIP, *explain),
        "job.toml": (_CONFIG, "explain", "--config", "{job.toml}"),
        "plan/job.toml": (_CONFIG.split("tensor")[0] + "top = 3\n", "plan", "--config", "{plan/job.toml}"),
        "jobs.toml": (_JOBS, "design", "--jobs", "{jobs.toml}", "--budget-usd", "1e8"),
        "stack.toml": (_STACK, "predict", "{rows.csv}", "--out", "{out.csv}", "--stack", "{stack.toml}"),
        "rows.csv": (_rows(), "predict", "{rows.csv}", "--out", "{out.csv}"),
        "explained/rows.csv": (_rows(), "predict", "{explained/rows.csv}", "--explain", "2"),
        "nccl.txt": (NCCL, "calibrate", "{nccl.txt}", "--cluster", "h100", "--out", "{out.toml}"),
        "kernels.csv": (_KERNELS, "calibrate", "{kernels.csv}", "--cluster", "h100", "--out", "{out.toml}"),
    }


BESIDE = {"model.toml": MODEL, "cluster.toml": CLUSTER, "rows.csv": _rows()}


def _of_bytes(text: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(text) + 1)
    noise = bytes(draw.randrange(256) for _ in range(draw.choice((1, 4, 40))))
    return draw.choice(
        (
            text[:at],
            text[:at] + noise + text[at:],
            text[:at] + text[at + draw.choice((1, 9)) :],
            text.replace(b"\n", b"\r\n")[: at + 9],
            text.decode().encode("utf-16"),
            text[:at] + b"\0" + text[at:],
            b"\xef\xbb\xbf" + text[:at],
            text[:at] + draw.choice((b"[", b"{", b"(")) * 20_000,
        )
    )


def _of_lines(text: bytes, draw: random.Random) -> bytes:
    lines = text.splitlines(keepends=True)
    i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
    other = [lines[:i] + [lines[i]] + lines[i:], lines[:i] + lines[i + 1 :], [*lines]]
    other[2][i], other[2][j] = lines[j], lines[i]
    return b"".join(draw.choice(other))


def _of_values(text: bytes, draw: random.Random) -> bytes:
    """One value of a file becomes another; in a table one cell."""
    words = text.decode()
    found = [*re.finditer(r"(?<=[=:,\s])\s*[-\w.\"]+(?=[\s,\n}\]]|$)", words)]
    if not found:
        return text
    at = draw.choice(found)
    return (words[: at.start()] + draw.choice(VALUES) + words[at.end() :]).encode()


def _of_names(text: bytes, draw: random.Random) -> bytes:
    """One word loses, doubles or swaps letters."""
    found = [*re.finditer(rb"[A-Za-z_]{3,}", text)]
    if not found:
        return text
    at = draw.choice(found)
    word, i = at[0], draw.randrange(len(at[0]) - 1)
    swapped = word[:i] + word[i + 1 : i + 2] + word[i : i + 1] + word[i + 2 :]
    return text[: at.start()] + draw.choice((swapped, word[:-1], word + word[-1:], word.upper())) + text[at.end() :]


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (_of_values, _of_bytes, _of_lines, _of_names, _of_values)


def _words(words: list[str], draw: random.Random) -> list[str]:
    """The command line itself: a value, a flag, an order, a repetition."""
    i = draw.randrange(len(words))
    changed = [*words]
    kind = draw.randrange(5)
    if kind == 0:
        changed[i] = draw.choice(VALUES)
    elif kind == 1:
        changed = [*words, "--" + draw.choice(("tensor", "data", "batch", "fix", "out", "top", "schedule", "json"))]
        changed.append(draw.choice(VALUES))
    elif kind == 2:
        del changed[i]
    elif kind == 3:
        changed = words + words[i : i + 2]
    else:
        changed[i] = _of_names(words[i].encode(), draw).decode()
    return changed


def cases(seed: int, count: int) -> Iterator[tuple[str, Case]]:
    """So many damaged inputs, each with the name of what was damaged."""
    draw, kinds = random.Random(seed), seeds()
    for number in range(count):
        name = draw.choice([*kinds])
        text, *words = kinds[name]
        content = text.encode()
        if draw.random() < 0.15:
            words, told = _words(words, draw), "words"
        else:
            for _ in range(draw.choice((1, 1, 1, 3))):
                damage = draw.choice(DAMAGES)
                try:
                    content = damage(content, draw)
                except (UnicodeDecodeError, IndexError, ValueError):
                    break
            told = "text"
        files = {beside: text.encode() for beside, text in BESIDE.items()} | {name.rpartition("/")[2]: content}
        yield f"{number}, {told} of {name}", (words, files)


def written(case: Case, folder: Path) -> list[str]:
    """The words, their files in place."""
    words, files = case
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [re.sub(r"\{(?:\w+/)?([\w.-]+)\}", lambda match: str(folder / match[1]), word) for word in words]
