"""What rows may be beside the pretraining of a decoder, by the words that say it: refused, or read in another way."""

_NOTHING, _PARTS = "nothing is trained", "only a part of it is trained"
_PREFERENCES = "preferences are trained, with other passes than one forward and one backward"
_OTHER_LAYERS = "it is no transformer of one kind of layer"
_MIXED_LAYERS = "some of its layers are no attention: state spaces or a linear one"
_PICTURES = "vit|deit|dinov2|dino"

OTHER_TRAINING = (
    ("lora|qlora|dora|peft", "only adapters are trained"),
    ("adapter* & only|tuning", "only adapters are trained"),
    ("adapter* are? trained", "only adapters are trained"),
    ("prefix|prompt tuning", "only adapters are trained"),
    ("frozen & backbone|base_model|encoder|weights|tower|layers", _PARTS),
    ("dpo|grpo|ppo|rlhf", _PREFERENCES),
    ("reinforcement learning", _PREFERENCES), ("rollout* & rl|policy|policies", _PREFERENCES),
    ("teacher model|logit*|forward", "a second model runs beside it"),
    ("distill* & teacher", "a second model runs beside it"),
    ("unet|u_net|stable_diffusion|sdxl", _OTHER_LAYERS),
    ("mamba|ssm|state_space|rwkv", "its layers are no attention"),
    ("short convolution*", "its layers are no attention"),
    ("linear|lightning attention", "its layers are no attention"),
)  # fmt: skip
"""Training that this model has no formula for, and why."""

NO_TRAINING = (
    ("decode|decoding|prefill phase|stage|batch", _NOTHING),
    ("decode|decoding|prefill & throughput|latency|speed", _NOTHING),
    ("inference throughput|latency|benchmark*|decode|prefill|batch|serving", _NOTHING),
    ("mlperf inference", _NOTHING),
    ("forward pass? only benchmark*|throughput|latency|time|timing|run|measure*", _NOTHING),
    ("only the? forward pass* is|was|are|were? timed|measured|benchmarked|run", _NOTHING),
    ("text|token generation throughput|latency|speed|benchmark", _NOTHING),
    ("vllm|sglang|tensorrt_llm", _NOTHING),
)  # fmt: skip
"""Rows of a model that is only run."""

OTHER_MODELS = (
    ("zamba*|jamba*|bamba*|samba|griffin|hyena|retnet|recurrent_gemma|falcon_h1|nemotron_h", _MIXED_LAYERS),
    ("nemotron v? 3 nano|super|ultra", _MIXED_LAYERS),  # K: of Nemotron-H's kind, unlike Llama's and 3 8B
    ("nemotron nano v? 2", _MIXED_LAYERS), ("nemotron nano 9b|12b v2", _MIXED_LAYERS),
    ("granite 4|4.0", _MIXED_LAYERS), ("qwen3 next", _MIXED_LAYERS), ("qwen3_next|kimi_linear", _MIXED_LAYERS),
    ("kimi linear", _MIXED_LAYERS), ("mini_max 01|m1|text", _MIXED_LAYERS), ("lfm2|plamo2|xlstm", _MIXED_LAYERS),
    ("swin|res_net|conv_next|yolo|efficient_net|dlrm|alpha_fold|wav2vec|conformer|lstm", _OTHER_LAYERS),
)  # fmt: skip
"""Names of models whose layers are no transformer's, and why their rows are refused."""

TWO_STACKS = ("t5|mt5|ul2|bart|mbart|pegasus|marian|nllb|m2m|whisper", "encoder decoder")
DIFFUSION = ("dit|pix_art|flux|sd3|sora|wan", "diffusion")
TWO_TOWERS = ("llava|neva|vlm|vl|intern_vl|clip|siglip|blip|flamingo|vision_language", "# b? vision")
PARTLY_KNOWN = (
    *((name, "encoder and decoder alike in layers, a target of a quarter of the sequence") for name in TWO_STACKS),
    *((name, "attention without a causal mask: a diffusion model, its conditioning not counted") for name in DIFFUSION),
    *((name, "its vision tower is not counted") for name in TWO_TOWERS),
)
"""Names of models of which columns do not hold everything, and what is assumed of them."""

ENCODERS = ("bert|roberta|deberta|electra|xlm_r|distilbert", "modern bert", _PICTURES, "vision transformer")
"""Names of encoders, whose attention has no causal mask."""
SPARSE = ("deep_seek v3.2|v3_2", "deepseek_v3.2", "glm 5")
"""Names of models that attend to a few of the tokens before each."""
VISION = (_PICTURES, "vision transformer")
"""Names of encoders of pictures, which end in a thousand classes."""
