"""Wrong inputs of many kinds, as one table: each must give one line that names the field, the value and the place.

`kind` is the argument that carries it (model, cluster, plan). `content` is written to `file` (None: nothing is written,
and `file` is what the user typed). `arguments` go beside it. The command line uses the same table.
"""

import dataclasses
from pathlib import Path
from typing import Any

MODEL = "layers = 2\nhidden = 64\nheads = 4\nffn = 256\nvocabulary = 100\nsequence = 32\nbatch = 8\n"
MOE = 'family = "moe"\nexperts = 8\nexpert_ffn = 64\n'
CLUSTER = """accelerators = 64
accelerator = "h100"
[[tiers]]
size = 8
bandwidth_gb_per_s = 450
latency_us = 2
[[tiers]]
name = "network"
size = 64
bandwidth_gbit_per_s = 400
latency_us = 3
"""
CHIP = CLUSTER.replace(
    'accelerator = "h100"\n', "accelerator = {peak_32bit_tflop_per_s = 100, hbm_gib = 80, hbm_tb_per_s = 3}\n"
)
DIRECTORY = object()


@dataclasses.dataclass(frozen=True)
class BadInput:
    name: str
    kind: str
    words: tuple[str, ...]
    content: Any = None
    file: str = "my.toml"
    arguments: tuple[tuple[str, Any], ...] = ()

    def write(self, folder: Path) -> str:
        """The name or the path to pass, its file in place."""
        if self.content is None:
            return self.file
        path = folder / self.file
        if self.content is DIRECTORY:
            path.mkdir()
        elif isinstance(self.content, bytes):
            path.write_bytes(self.content)
        else:
            path.write_text(self.content)
        return str(path)


def model(name: str, old: str, new: str, *words: str) -> BadInput:
    assert old in MODEL
    return BadInput(name, "model", ("my.toml", *words), MODEL.replace(old, new, 1))


def cluster(name: str, old: str, new: str, *words: str, of: str = CLUSTER) -> BadInput:
    assert old in of
    return BadInput(name, "cluster", ("my.toml", *words), of.replace(old, new, 1))


def plan(name: str, content: str, *words: str, file: str = "my.json") -> BadInput:
    return BadInput(name, "plan", (file, *words), content, file)


BAD_INPUTS = (
    # files
    BadInput("missing file", "model", ("absent.toml", "no such file"), file="absent.toml"),
    BadInput("a directory", "cluster", ("my.toml", "not a file"), DIRECTORY),
    BadInput("truncated TOML", "cluster", ("my.toml", "line 3"), 'accelerators = 8\naccelerator = "h100"\n[[tie'),
    BadInput("binary noise", "model", ("my.toml", "not text"), bytes(range(128, 256)) * 4),
    BadInput("text that is no TOML", "model", ("my.toml", "not valid TOML", "line 1"), "once upon a time\n"),
    BadInput("a null byte", "model", ("my.toml", "line 1", "null byte"), "layers = \x00\n"),
    BadInput("control characters", "model", ("my.toml", "not valid TOML"), "layers = \x01\n"),
    BadInput("an empty file", "model", ("my.toml", "`layers`", "missing"), ""),
    BadInput("a HuggingFace file", "model", ("config.json", "HuggingFace"), '{"hidden_size": 64}', "config.json"),
    BadInput("a HuggingFace kind", "model", ("`model_type` is 'mamba'",), '{"model_type": "mamba"}', "config.json"),
    BadInput("a HuggingFace hole", "model", ("`d_model` is missing",), '{"model_type": "t5"}', "config.json"),
    plan("truncated JSON", '{"data": 8,\n', "not valid JSON", "line 2"),
    plan("a JSON list", "[1, 2]", "[1, 2]", "expected an object"),
    plan("a JSON key twice", '{"data": 8, "data": 4}', "'data' is given twice"),
    plan("a NaN literal", '{"recompute_share": NaN}', "NaN", "finite"),
    plan("deep nesting", '{"data": ' + "[" * 100_000, "not valid JSON"),
    plan("an answer without a plan", '{"status": "infeasible", "plan": null}', "`plan` is None", "expected an object"),
    # names
    BadInput("unknown model", "model", ("'lama3-8b'", "did you mean", "llama3-8b"), file="lama3-8b"),
    BadInput("unknown cluster", "cluster", ("'h10O'", "did you mean", "h100"), file="h10O"),
    BadInput("empty name", "cluster", ("`cluster` is ''", "a100-80gb"), file=""),
    cluster("unknown accelerator", '"h100"', '"h1000"', "`accelerator`", "'h1000'", "did you mean h100"),
    # model fields
    model("unknown key", "heads", "headz", "`headz`", "heads"),
    model("missing key", "ffn = 256\n", "", "`ffn` is missing"),
    model("negative", "layers = 2", "layers = -2", "`layers` is -2", "expected an integer from 1"),
    model("zero", "hidden = 64", "hidden = 0", "`hidden` is 0"),
    model("boolean for an integer", "batch = 8", "batch = true", "`batch` is true"),
    model("text for an integer", "heads = 4", 'heads = "4"', "`heads` is '4'"),
    model("float for an integer", "heads = 4", "heads = 4.0", "`heads` is 4.0"),
    model("absurdly large", "layers = 2", "layers = 1" + "0" * 300, "`layers` is an integer of 997 bits"),
    model("integer for a flag", "batch = 8", "batch = 8\ntied = 1", "`tied` is 1", "true or false"),
    model("a table for a number", "batch = 8", "batch = {size = 8}", "`batch` is a table"),
    model(
        "unknown family", "batch = 8", 'batch = 8\nfamily = "decodr"', "`family` is 'decodr'", "did you mean decoder"
    ),
    model("fields of another family", "batch = 8", 'batch = 8\nfamily = "swin"', "`layers` is not a field here"),
    model("fewer experts than chosen", "ffn = 256", MOE + "top_k = 9", "`top_k` is 9", "at most `experts` (8)"),
    model("half a latent attention", "ffn = 256", MOE + "top_k = 2\nlatent = {query_rank = 3}", "`latent` is a table"),
    model("a list for a number", "heads = 4", "heads = [4]", "`heads` is [4]"),
    model("heads do not divide", "heads = 4", "heads = 5", "`heads` is 5", "`hidden` (64)"),
    model("key-value heads", "heads = 4", "heads = 4\nkey_value_heads = 3", "`key_value_heads` is 3", "`heads` (4)"),
    model("a name over two lines", "layers", 'name = "a\\nb"\nlayers', "`name` is 'a\\nb'"),
    BadInput("wrong sequence", "model", ("llama3-8b", "`sequence` is 0"), None, "llama3-8b", (("sequence", 0),)),
    BadInput("wrong batch", "model", ("llama3-8b", "`batch` is -1"), None, "llama3-8b", (("batch", -1),)),
    # cluster fields
    cluster("negative memory", "hbm_gib = 80", "hbm_gib = -80", "`hbm_gib` is -80", "a number > 0", of=CHIP),
    cluster("NaN bandwidth", "hbm_tb_per_s = 3", "hbm_tb_per_s = nan", "`hbm_tb_per_s` is nan", of=CHIP),
    cluster("infinite peak", "per_s = 100", "per_s = inf", "`peak_32bit_tflop_per_s` is inf", of=CHIP),
    cluster("absurd peak", "per_s = 100", "per_s = 1e23", "`peak_32bit_tflop_per_s` is 1e+23", of=CHIP),
    cluster("wrong unit", "hbm_gib", "hbm_gigs", "`hbm_gigs`", "did you mean", of=CHIP),
    cluster("a field twice", "hbm_gib = 80", "hbm_gib = 80, hbm_mib = 9", "`hbm_mib`", "given already", of=CHIP),
    cluster("no memory", "hbm_gib = 80, ", "", "`hbm_bytes` is missing", "hbm_gib", of=CHIP),
    cluster("unknown type", "hbm_gib", 'types = ["fp12"], hbm_gib', "`types` is ['fp12']", "bf16", of=CHIP),
    cluster("text for a rate", "450", '"fast"', "tier 1", "`bandwidth_gb_per_s` is 'fast'"),
    cluster("negative latency", "latency_us = 3", "latency_us = -3", "tier 2 (network)", "`latency_us` is -3"),
    cluster("undersubscribed", "latency_us = 3", "latency_us = 3\noversubscription = 0.5", "`oversubscription` is 0.5"),
    cluster("tiers that do not nest", "size = 64", "size = 60", "`size` is 60", "a multiple of 8"),
    cluster("tiers that shrink", "size = 64", "size = 4", "`size` is 4", "a multiple of 8"),
    cluster("more usable than there are", "size = 8", "size = 8\nusable_size = 9", "`usable_size` is 9", "at most 8"),
    cluster("half accelerators", "accelerators = 64", "accelerators = 6.5", "`accelerators` is 6.5"),
    cluster("no accelerators", "accelerators = 64", "accelerators = 0", "`accelerators` is 0"),
    cluster("more than the network holds", "= 64\nacc", "= 65\nacc", "`accelerators` is 65", "at most 64"),
    BadInput("empty tiers", "cluster", ("`tiers` is []",), 'accelerators = 8\naccelerator = "h100"\ntiers = []\n'),
    BadInput("no tiers", "cluster", ("`tiers` is missing",), 'accelerators = 8\naccelerator = "h100"\n'),
    cluster(
        "unknown stack field", "[[tiers]]", "[stack]\nkernels_s = 1\n[[tiers]]", "stack", "`kernels_s`", "kernel_s"
    ),
    cluster("stack over its limit", "[[tiers]]", "[stack]\nhbm_ceiling = 1.5\n[[tiers]]", "`hbm_ceiling` is 1.5"),
    cluster("a stack that is none", "[[tiers]]", "stack = 3\n[[tiers]]", "`stack` is 3"),
    BadInput("wrong number", "cluster", ("h100", "`accelerators` is 0"), None, "h100", (("accelerators", 0),)),
    # plan fields
    plan("unknown plan field", '{"tensors": 8}', "`tensors`", "did you mean tensor"),
    plan("unknown schedule", '{"schedule": "1f1b"}', "`schedule` is '1f1b'", "one_f_one_b"),
    plan("a degree of zero", '{"tensor": 0}', "`tensor` is 0"),
    plan("a flag as text", '{"overlap_data": "yes"}', "`overlap_data` is 'yes'", "true or false"),
    plan("a share over one", '{"recompute_share": 1.5}', "`recompute_share` is 1.5"),
    plan("a stage without layers", '{"stage_layers": [4, 0]}', "`stage_layers` is [4, 0]"),
    plan("ZeRO stage four", "zero_stage = 4\n", "`zero_stage` is 4", "0, 1, 2, 3", file="my.toml"),
)
