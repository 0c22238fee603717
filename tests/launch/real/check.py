"""Feeds launch files to the frameworks' own parsers; run by an interpreter of its own that has them (extra `launch`).

Standard input: JSON list of [framework, text, facts]; standard output: JSON list of what was wrong with each, "" for
nothing. Run for real are: DeepSpeed's `DeepSpeedConfig` and its check of optimizers and number types; torchtitan's
configuration classes and `ParallelDims`; Hydra's grammar with the application of overrides, and the configuration
classes of Megatron's core, for Megatron-Bridge and Megatron-LM. Stubbed are world sizes; no kernel is run. The parsers
of Megatron-LM and MaxText are in no registry: their names stand in tests/golden/launch_options.toml.
"""

# pyright: reportMissingImports=false
import dataclasses
import json
import shlex
import sys
import types
import typing


def check_deepspeed(text, facts):
    import torch
    from deepspeed import comm
    from deepspeed.runtime import config as source

    content = json.loads(text)
    world, inside = facts["accelerators"], facts["tensor"] * facts["pipeline"]
    comm.get_world_size, comm.get_rank = lambda *_, **__: world, lambda *_, **__: 0
    comm.comm.get_world_size, comm.comm.get_rank = comm.get_world_size, comm.get_rank
    topology = types.SimpleNamespace(get_data_parallel_world_size=lambda: world // inside)
    read = source.DeepSpeedConfig(content, mpu=topology if facts["pipeline"] > 1 else None)
    copies = facts["tensor"] if facts["tensor"] > 1 and facts["pipeline"] == 1 else 1
    assert read.train_batch_size == facts["batch"] * copies
    assert read.train_micro_batch_size_per_gpu == facts["microbatch"]
    assert read.zero_optimization_stage == facts["zero_stage"]
    _check_engine(content, read, torch)


def _check_engine(content, read, torch):
    """The engine's own check of the optimizer and of the types in which gradients add up."""
    from deepspeed.runtime.engine import DeepSpeedEngine

    names = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    model = "bf16" if content["bf16"]["enabled"] else "fp16" if content["fp16"]["enabled"] else "fp32"
    kept = names[content["data_types"]["grad_accum_dtype"]]
    engine = types.SimpleNamespace(
        get_data_types=lambda: (names[model], kept),
        zero_optimization=lambda: read.zero_optimization_stage > 0,
        zero_optimization_stage=lambda: read.zero_optimization_stage,
        zero_allow_untested_optimizer=lambda: read.zero_allow_untested_optimizer,
        zero_cpu_offload=lambda: "offload_optimizer" in content["zero_optimization"],
        zero_compute_grad_norm=lambda: True,
        pipeline_parallelism="pipeline" in content,
        global_rank=0,
    )
    kinds = {"AdamW": torch.optim.AdamW, "SGD": torch.optim.SGD, "Adafactor": torch.optim.Adafactor}
    kind = kinds.get(content["optimizer"]["type"])
    if kind is not None:
        optimizer = kind([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        DeepSpeedEngine._do_optimizer_sanity_check(engine, optimizer)


def check_torchtitan(text, facts):
    from torch.distributed.pipelining.schedules import get_schedule_class
    from torchtitan.config.configs import ParallelismConfig, TrainingConfig
    from torchtitan.distributed import ParallelDims

    space = {}
    exec(text, space)
    config = types.SimpleNamespace(parallelism=ParallelismConfig(), training=TrainingConfig(), activation_checkpoint=0)
    config = space["use_plan"](config)
    for section in (config.parallelism, config.training):
        _check_types(section)
    parallel, training = config.parallelism, config.training
    degrees = {
        "dp_replicate": parallel.data_parallel_replicate_degree, "dp_shard": parallel.data_parallel_shard_degree,
        "cp": parallel.context_parallel_degree, "tp": parallel.tensor_parallel_degree,
        "pp": parallel.pipeline_parallel_degree, "ep": parallel.expert_parallel_degree,
    }  # fmt: skip
    import inspect

    taken = inspect.signature(ParallelDims.__init__).parameters
    extra = {name: value for name, value in {"etp": 1}.items() if name in taken}
    ParallelDims(**degrees, **extra, world_size=facts["accelerators"])
    ranks = degrees["dp_replicate"] * degrees["dp_shard"]
    assert training.global_batch_size == facts["batch"]
    assert training.global_batch_size % (training.local_batch_size * ranks) == 0
    if degrees["pp"] > 1:
        get_schedule_class(parallel.pipeline_parallel_schedule)
        assert training.local_batch_size % parallel.pipeline_parallel_microbatch_size == 0
    size = parallel.pipeline_parallel_microbatch_size if degrees["pp"] > 1 else training.local_batch_size
    assert size == facts["microbatch"]


def _check_types(section):
    """Values of fields that may be some words only."""
    for name, kind in typing.get_type_hints(type(section)).items():
        if typing.get_origin(kind) is typing.Literal:
            assert getattr(section, name) in typing.get_args(kind), (name, getattr(section, name))


def check_bridge(text, facts):
    """On recipes with and without a section `comm_overlap`, and with leftovers."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    words = shlex.split("\n".join(line for line in text.splitlines() if not line.startswith("#")))
    parsed = OverridesParser.create().parse_overrides(words)
    left = {"virtual_pipeline_model_parallel_size": 2, "recompute_method": "block", "recompute_num_layers": 3}
    for overlap in (None, {"tp_comm_overlap": True}):
        recipe = OmegaConf.create(_recipe("multi-latent" if "kv_lora_rank" in text else "") | {"comm_overlap": overlap})
        recipe.model.update(left)
        OmegaConf.set_struct(recipe, True)
        ConfigLoaderImpl._apply_overrides_to_config(overrides=parsed, cfg=recipe)
        read = OmegaConf.to_container(recipe)
        assert read["comm_overlap"] is None
        _check_core(read["model"], read["mixed_precision"] != "fp16_mixed", facts, read["optimizer"])


def _recipe(kind):
    """The names of the sections, as a recipe has them."""
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    core = MLATransformerConfig if kind else TransformerConfig
    names = {field.name: None for field in dataclasses.fields(core)}
    provider = ("seq_length", "vocab_size", "share_embeddings_and_output_weights", "position_embedding_type")
    gemma = ("interleaved_attn_pattern", "attn_logit_softcapping")
    optimizer = {field.name: None for field in dataclasses.fields(OptimizerConfig)}
    return {
        "model": names | dict.fromkeys((*provider, *gemma, "recompute_modules")),
        "ddp": {field.name: None for field in dataclasses.fields(DistributedDataParallelConfig)},
        "optimizer": optimizer | {"optimizer": "adam"},
        "train": {"micro_batch_size": 1, "global_batch_size": 1},
        "dataset": {"seq_length": 1},
        "checkpoint": {"ckpt_format": None},
        "mixed_precision": "bf16_mixed",
    }


def check_megatron(text, facts):
    """The flags as fields of the core's configuration, which takes most of them under the same names."""
    words = shlex.split(text.replace("\\\n", " "), comments=True)
    flags, name = {}, ""
    for word in words:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            flags[name] = True
        else:
            before = flags[name]
            flags[name] = word if before is True else [*(before if isinstance(before, list) else [before]), word]
    renamed = {
        "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
        "group_query_attention": "", "num_experts": "num_moe_experts", "swiglu": "gated_linear_unit",
        "fp8_format": "fp8", "fp4_format": "fp4", "moe_layer_freq": "", "quick_geglu": "gated_linear_unit",
    }  # fmt: skip
    fields = {renamed.get(key, key): value for key, value in flags.items()}
    fields["add_bias_linear"] = "disable_bias_linear" not in flags
    if isinstance(fields.get("recompute_modules"), str):
        fields["recompute_modules"] = [fields["recompute_modules"]]
    _check_core(fields, "fp16" not in flags and "bf16" in flags, facts, fields)


def _check_core(model, is_bf16, facts, optimizer):
    """Megatron's own configuration of the model, which checks itself, and the rules beside it."""
    import torch
    from megatron.core.transformer.enums import AttnBackend
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    kind = MLATransformerConfig if model.get("kv_lora_rank") else TransformerConfig
    known = {field.name: field.type for field in dataclasses.fields(kind)}
    values = {name: _typed(value) for name, value in model.items() if name in known and value is not None}
    if "hidden_size" not in values:  # of a model that the file leaves to a recipe
        values |= {"num_layers": 64, "hidden_size": 8192, "num_attention_heads": 64, "add_bias_linear": False}
        values |= {"gated_linear_unit": True, "activation_func": torch.nn.functional.silu}
        experts = {values.get(f"expert_{part}_parallel_size", 1) for part in ("model", "tensor")} != {1}
        values |= {"num_moe_experts": 64, "moe_grouped_gemm": True} if experts else {}
    values["attention_backend"] = AttnBackend[values.get("attention_backend", "auto")]
    values.pop("cp_comm_type", None)
    if layout := values.pop("pipeline_model_parallel_layout", None):
        held = PipelineParallelLayerLayout(layout, facts["pipeline"])
        held.validate_layer_layout(sum(str(row).count("decoder") for row in held.layout), 0)
        assert len(held.layout[0]) == facts["virtual_stages"]
        values["virtual_pipeline_model_parallel_size"] = (
            facts["virtual_stages"] if facts["virtual_stages"] > 1 else None
        )
    dtype = torch.bfloat16 if is_bf16 else torch.float32
    for left_to_cards in ("fp8", "fp8_recipe", "fp4", "fp4_recipe"):
        values.pop(left_to_cards, None)  # Transformer Engine is asked for its version
    values |= {"bf16": is_bf16, "fp16": False, "params_dtype": dtype, "pipeline_dtype": dtype}
    values["gradient_accumulation_fusion"] = False
    read = kind(**values)
    assert read.tensor_model_parallel_size == facts["tensor"]
    assert read.pipeline_model_parallel_size == facts["pipeline"]
    assert (read.virtual_pipeline_model_parallel_size or 1) == facts["virtual_stages"]
    name = optimizer.get("optimizer", "adam")
    divided = optimizer.get("use_distributed_optimizer")
    assert not divided or name == "adam", "DistributedOptimizer takes Adam only"


def _typed(value):
    """What argparse would make of a word."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    return value


CHECKS = {
    "deepspeed": check_deepspeed,
    "torchtitan": check_torchtitan,
    "megatron-bridge": check_bridge,
    "megatron": check_megatron,
}


def main():
    out = sys.stdout
    sys.stdout = sys.stderr
    answers = []
    for framework, text, facts in json.load(sys.stdin):
        try:
            CHECKS[framework](text, facts)
            answers.append("")
        except Exception as error:
            answers.append(f"{type(error).__name__}: {str(error)[:500]}")
    json.dump(answers, out)


if __name__ == "__main__":
    main()
