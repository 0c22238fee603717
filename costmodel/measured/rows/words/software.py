"""Names of software, of ways to share states and of schedules, each with what it is here; phrases as in grammar.py."""

_SPLIT = "shard*|partition*|split|divided|spread"

SOFTWARE_NAMES = (
    ("nanotron", "nanotron"),
    ("max text", "xla"), ("pax|paxml|praxis", "xla"), ("jax", "xla"), ("levanter|haliax", "xla"),
    ("xla|gspmd", "xla"), ("tpu", "xla"), ("flax|t5x|easylm|easy_lm|axlearn|alpa", "xla"), ("tensor_flow", "xla"),
    ("tunix|kithara", "xla"),  # K: their READMEs: in JAX
    ("neuron|neuronx", "xla"),
    ("megatron deep_speed|llama", "megatron-2022"), ("gpt neox", "megatron-2022"),
    ("torch titan|torchtitan", "fsdp"), ("fms fsdp", "fsdp"), ("fairscale|fair_scale|metaseq", "fsdp"),
    ("megatron fsdp", "megatron-core"),
    ("lit_gpt|olmo|veomni|ve_scale|torch_tune|lingua|composer|unsloth", "fsdp"),
    ("fairseq|fairseq2|open_diloco|prime_rl|simple_fsdp|ya_fsdp|bm_train", "fsdp"),  # K: their READMEs
    ("llama recipes|cookbook", "fsdp"),  # K: `examples` of meta-llama/llama-recipes
    ("sage_maker smp", "fsdp"), ("sage_maker model parallel*", "fsdp"), ("smdistributed", "fsdp"),  # K: SMP v2's guide
    ("auto model", "fsdp"), ("dtensor", "fsdp"),  # K: NVIDIA-NeMo/Automodel's README: DTensor and FSDP2
    ("torch xla|acc", "xla"), ("nano_gpt|nano_chat", "fsdp"),
    ("megatron bridge", "megatron-core"), ("megatron_core|mcore|m_core", "megatron-core"),
    ("nemo launcher|framework|megatron", "megatron-core"), ("dgxc", "megatron-core"),
    ("transformer engine", "megatron-core"), ("te", "megatron-core"),
    ("pai_megatron", "megatron-core"), ("primus|mind_speed|model_link", "megatron-2022"),
    ("nemo", "megatron-core"),
    ("fsdp|fsdp2|hsdp", "fsdp"), ("foundry", "fsdp"), ("full*|hybrid shard*", "fsdp"), ("shard grad op", "fsdp"),
    ("deep speed", "deepspeed"), ("zero stage? 3", "deepspeed"), ("ds config|z1|z2|z3|zero*", "deepspeed"),
    ("z3", "deepspeed"),
    ("colossal|colossalai", "deepspeed"),
    ("megatron*", "megatron-2022"), ("mega scale", "megatron-2022"), ("narayanan|korthikanti", "megatron-2022"),
    ("vtrain|v_train|intern_evo|galvatron|aceso|merak|libai", "megatron-2022"),
    ("flag_scale|mega_blocks|axonn", "megatron-2022"),  # K: their READMEs: extensions of Megatron-LM
    ("paddle*|mind_spore|mind_formers", "megatron-2022"),
    ("mlperf", "megatron-core"),  # K: its reference of Llama 3.1 is NeMo
    ("big_science", "megatron-2022"),  # K: its papers train with Megatron-DeepSpeed
    ("zero optimi*", "deepspeed"),
    ("zero stage? 2|ii", "deepspeed"), ("zero offload*|infinity", "deepspeed"),
    ("zero infinity|plus_plus|++", "deepspeed"), ("ulysses", "deepspeed"),
    ("arctic_training", "deepspeed"), ("optimum_habana", "deepspeed"), ("gaudi trainer", "deepspeed"),  # K: READMEs
    ("lightning|axolotl|accelerate|trl|xtuner|x_tuner|ms_swift", "fsdp"),  # which start others, named before
    ("llama factory", "fsdp"), ("hf|hugging_face|transformers trainer", "fsdp"),
    ("torch compile*", "fsdp"), ("py_torch ddp|distributed", "fsdp"),
)  # fmt: skip
"""Names of software, and its class; of several the first counts, because forks name what they came from."""

SHARDINGS = (
    ("zero optimi*? stage? 0", 0), ("p_os g p", 3), ("p_os g", 2),  # K: the paper's own names
    ("zero optimi*? stage? 2|ii", 2), ("shard grad op", 2), ("hybrid shard zero2", 2), ("sharding? stage 2", 2),
    ("sharded ddp", 2),
    ("zero optimi*? stage? 1|i", 1), ("zero optimi*? stage? 3|iii", 3),
    ("dist|distributed|sharded fused? optimizer|optim|opt|adam*", 1),
    (f"param*|weight* & {_SPLIT} over|across|among|between all|dp|data_parallel*|rank*", 3),
    ("optimizer state? is|are? shard*|partition*", 1),
    ("zero & stage~ 2|ii", 2), ("zero & stage~ 3|iii", 3), ("zero & stage~ 1", 1),
    ("zero redundancy optimizer", 1), ("sharding? stage 1", 1), ("shard*|partition* optimizer state?", 1),
    ("fsdp|fsdp2|hsdp", 3), ("mics", 3), ("sharded data parallel*", 3), ("full* shard*", 3), ("hybrid shard*", 3),
    ("sharding? stage 3", 3), ("gemini", 3), ("zero infinity|plus", 3), ("sharding? stage 0", 0),
    ("deep_speed stage 0", 0), ("deep_speed stage 2", 2), ("deep_speed stage 1", 1), ("deep_speed stage 3", 3),
    ("no sharding|zero", 0), ("z1", 1), ("z2", 2), ("z3", 3), ("zero ++", 3),
    ("param*|weight*|model_state is|are? shard*|partition*|split|divided", 3),
    ("adam*|optimizer & shard*|partition*|split state?", 1), ("sdp #", 3),
    ("stage 1 shard*", 1), ("stage 2 shard*", 2), ("stage 3 shard*", 3), ("zero~ optimi*|dp|data_parallel*", 1),
    ("optim grads params", 3), ("optim grads", 2), ("optim", 1),  # K: strategies of Megatron-FSDP
)  # fmt: skip
"""Ways to share states, and the stage of ZeRO that each is."""

SCHEDULES = (
    ("dual pipe*", "dualpipe"),
    ("zb v", "zb_v"), ("zb v zero bubble", "zb_v"), ("zero bubble v", "zb_v"), ("v half|min|shape*|schedule", "zb_v"),
    ("zb h2|2p", "zb_h2"), ("zero bubble h2", "zb_h2"), ("zb|zbb|zbpp|zb_pp", "zb_h1"), ("zero bubble", "zb_h1"),
    ("interleav*", "interleaved"), ("1f1b i|int", "interleaved"),
    ("looped|looping|circular|breadth_first", "interleaved"),
    ("gpipe|g_pipe|torch_gpipe|afab", "gpipe"), ("fill drain", "gpipe"), ("all forward all? backward", "gpipe"),
    ("1f1b|dapple|pipedream|pipe_dream", "one_f_one_b"), ("one forward one backward", "one_f_one_b"),
)  # fmt: skip
"""Pipeline schedules by name."""

FOLDED = (("v half", "v_half"), ("v min", "v_min"))
"""Variants of ZB-V that hold fewer microbatches."""


def releases(year: int, month: int) -> str:
    """Releases named by year and month from this one on, as alternatives of a phrase."""
    every = ((y, m) for y in range(year, 30) for m in range(1, 13))
    return "|".join(f"{y}.{m:02d}" for y, m in every if (y, m) >= (year, month))
