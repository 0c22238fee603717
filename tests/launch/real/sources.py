"""Feeds launch files to the parsers of MaxText and Megatron-LM, which are in no registry, from a checkout of either.

Arguments: the framework and the folder that holds its package; standard input and output as in check.py. Run for real
are MaxText's `pyconfig.initialize` (base.yml, its types and rules) and Megatron-LM's `parse_args`, `validate_args` and
`core_transformer_config_from_args`. Stubbed are devices, processes, packages that are not installed, and the version of
Transformer Engine.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
import importlib.abc
import importlib.machinery
import json
import os
import shlex
import sys
import types
import typing
from unittest import mock

STUBBED = """
flax orbax tensorflow pathwaysutils grain optax qwix aqt tensorboardX google tokamax transformers chex jaxtyping vllm
drjax mlperf_logging etils clu psutil sentencepiece huggingface_hub safetensors multistorageclient wandb
""".split()
TE = "2.16.0"


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Packages that are imported and never asked for anything that matters here."""

    def find_spec(self, name, path, target=None):
        known = name.split(".")[0] in STUBBED or name.startswith("maxtext.")
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec):
        module = mock.MagicMock(name=spec.name)
        module.__spec__, module.__path__, module.__name__ = spec, [], spec.name
        return module

    def exec_module(self, module):
        pass


def check_maxtext(text, facts, folder):
    import jax
    import yaml
    from maxtext.configs import pyconfig

    values, count = yaml.safe_load(text), facts["accelerators"]
    each = 1 if values.get("hardware") == "gpu_multiprocess" else 8
    devices = [types.SimpleNamespace(id=i, slice_index=i // 8, process_index=i // each) for i in range(count)]
    jax.devices, jax.device_count = lambda *_, **__: devices, lambda *_: count
    jax.local_device_count, jax.process_count = lambda *_: each, lambda *_: count // each
    jax.default_backend, jax.distributed.is_initialized = lambda *_: "gpu", lambda: True
    words = [f"{name}={json.dumps(v) if isinstance(v, list | bool) else v}" for name, v in values.items()]
    if "num_layers_per_pipeline_stage" in values and not values.keys() & {"base_num_decoder_layers", "model_name"}:
        words.append(f"base_num_decoder_layers={values['num_layers_per_pipeline_stage'] * facts['pipeline']}")
    base = os.path.join(folder, "maxtext/configs/base.yml")
    read = pyconfig.initialize(["", base, "run_name=t", "skip_jax_distributed_system=True", *words])
    for name, value in values.items():
        if isinstance(value, int | float):
            assert float(getattr(read, name)) == float(value), name


def check_megatron(text, facts, folder):
    from megatron.training import arguments
    from megatron.training.argument_utils import core_transformer_config_from_args

    _with_transformer_engine()
    words = shlex.split(text.replace("\\\n", " "), comments=True)
    many = {"--use-megatron-fsdp", "--overlap-moe-expert-parallel-comm"} & set(words)
    os.environ |= {"WORLD_SIZE": str(facts["accelerators"]), "RANK": "0"}
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "32" if many else "1"
    words += shlex.split("--mock-data --tokenizer-type NullTokenizer --train-iters 9 --lr 1e-4 --no-rope-fusion")
    words += ["--no-gradient-accumulation-fusion"]
    if "--hidden-size" not in words:  # of a model that Megatron has no flags for
        words += shlex.split("--hidden-size 8192 --num-attention-heads 64 --max-position-embeddings 131072 --swiglu")
        words += shlex.split("--vocab-size 32000 --disable-bias-linear --normalization RMSNorm")
        words += [] if "--num-layers" in words else ["--num-layers", str(facts["layers"])]
        experts = shlex.split("--num-experts 64 --moe-router-topk 2 --moe-grouped-gemm")
        words += experts if "--expert-model-parallel-size" in words else []
    sys.argv = ["pretrain_gpt.py", *words]
    read = arguments.parse_args()
    arguments.validate_args(read)
    core = core_transformer_config_from_args(read)
    assert read.tensor_model_parallel_size == facts["tensor"]
    assert read.pipeline_model_parallel_size == facts["pipeline"]
    assert (core.virtual_pipeline_model_parallel_size or 1) == facts["virtual_stages"]
    assert read.data_parallel_size * facts["tensor"] * facts["pipeline"] * facts["context"] == facts["accelerators"]


def _with_transformer_engine():
    """Its version, wherever it is asked for."""
    from packaging.version import Version

    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("megatron"):
            if "is_te_min_version" in vars(module):
                module.is_te_min_version = lambda least, *_, **__: Version(TE) >= Version(least)
            if "get_te_version" in vars(module):
                module.get_te_version = lambda: Version(TE)


def _with_cards():
    import torch

    card = types.SimpleNamespace(major=9, minor=0, name="H100", total_memory=80 << 30, multi_processor_count=132)
    torch.cuda.get_device_capability, torch.cuda.is_available = lambda *_, **__: (9, 0), lambda: True
    torch.cuda.device_count, torch.cuda.current_device = lambda: 8, lambda: 0
    torch.cuda.get_device_properties = lambda *_, **__: card


def main():
    name, folder = sys.argv[1:3]
    out, sys.stdout = sys.stdout, sys.stderr
    sys.path.insert(0, folder)
    sys.meta_path.append(Stubs())
    typing.override = getattr(typing, "override", lambda method: method)
    if name == "megatron":
        _with_cards()
    answers = []
    for _, text, facts in json.load(sys.stdin):
        try:
            {"maxtext": check_maxtext, "megatron": check_megatron}[name](text, facts, folder)
            answers.append("")
        except (Exception, SystemExit) as error:
            answers.append(f"{type(error).__name__}: {str(error)[:500]}")
    json.dump(answers, out)


if __name__ == "__main__":
    main()
