"""Formats of numbers, of products, moments and gradients, by the words that say them; phrases as in grammar.py."""

PRECISIONS = (
    ("nvfp4|nv_fp4|mxfp4|fp4|fp_4|e2m1", "nvfp4"),
    ("mxfp8|mx_fp8|fp8_mx|mx_8", "mxfp8"), ("fp8|float8 & mx|microscaling", "mxfp8"),
    ("fp8|float8|fp_8 & block*|blockwise|subchannel|sc|tile*|128x128|1x128", "fp8_block"),
    ("fp8_bs|fp8_block*", "fp8_block"), ("fp8_bs", "fp8_block"),
    ("fp8|float8|fp_8|f8|e4m3|hfp8|8_bit|8bit", "fp8_tensor"), ("int8", "fp8_tensor"),
    ("bf16|bfloat16|bfloat|bf_16", "bf16"),
    ("fp16|float16|f16|fp_16|half", "fp16"),
    ("fp32|float32|f32|fp_32|tf32|single", "fp32"), ("32 true|bit", "fp32"),
    ("amp|mixed|16_bit|16bit|16", "16"),
)  # fmt: skip
"""Formats of numbers by name; `16` is the 16-bit format that the accelerator has."""

_MOMENTS = "moment*|optimizer_state|optim_state|adam*_state|exp_avg"
STATES = (
    (f"fp32|float32|32_bit & {_MOMENTS}", "fp32"),
    (f"bf16|bfloat16|16_bit & {_MOMENTS}", "bf16"), ("bf16|bfloat16|16_bit states", "bf16"),
    (f"fp16|float16 & {_MOMENTS}", "fp16"),
    (f"fp8|float8|8_bit & {_MOMENTS}", "fp8"),
)  # fmt: skip
"""The format of the optimizer's moments."""

SCALINGS = (
    ("mx|microscaling scal*", "mxfp8"), ("block* scal*", "fp8_block"), ("blockwise|128x128|1x128", "fp8_block"),
)  # fmt: skip
"""How 8-bit products are scaled, where the column says that they are of 8 bits."""

SUBMISSIONS = (("mlperf|mlcommons", "fp8_tensor"),)
"""The format where none is named and the accelerator has 8-bit floats: of contests, in which every per cent counts."""

GRADIENTS = (
    ("fp32|float32|32_bit|single_precision & grad*|grad_accum*|reduc*", "fp32"),
    ("fp32|float32|32_bit|single_precision sum*|accum*", "fp32"), ("accum*_gradients & fp32|float32", "fp32"),
    ("bf16|bfloat16|16_bit & grad*_accum*|grad*_reduc*|reduc*", "bf16"),
    ("bf16|bfloat16|fp16|16_bit gradient|grad", "bf16"),
    ("gradient|grad is|are? kept|stored|held|reduced? in|as? bf16|bfloat16|16_bit", "bf16"),
    ("gradient|grad compressed|cast to bf16|bfloat16|fp16|16_bit", "bf16"),
)  # fmt: skip
"""The format in which gradients add up."""
