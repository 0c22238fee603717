"""Names of architectures of HuggingFace: those with a part that is read, and those that are not read."""

from typing import Any

NESTED = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
"""Models of text and images, whose text part is read: their `text_config` is one of these."""
LEFT_OUT: dict[str, dict[str, Any]] = {
    "gemma3": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208},
}
"""What a `text_config` leaves out where it is the class's own default."""
STATE_SPACES = frozenset(
    """
    bamba falcon_h1 falcon_mamba granitemoehybrid jamba kimi_linear lfm2 lfm2_moe mamba mamba2 minimax minimax_m1
    nemotron_h olmo_hybrid plamo2 qwen3_5 qwen3_5_moe qwen3_next recurrent_gemma rwkv xlstm zamba zamba2
    """.split()
)
"""Models with layers of state spaces or linear attention, which nothing here counts."""
OTHERS = frozenset(
    """
    albert aria bart beit big_bird biogpt bitnet blenderbot clip codegen command-r convbert ctrl deberta deepseek
    deepseek_v32 deepseek_v4 diffllama dinov2 distilbert doge dpt electra ernie exaone flan-t5 gemma3n gemma3n_text
    gemma4 git glm glm4_moe_lite glm4v glm4v_moe gpt_j gpt_neo grok grok-1 helium hunyuan_v1_moe ibert idefics
    internlm jetmoe led llava longformer longt5 m2m_100 marian mbart50 megatron-bert minicpm minicpm3 mllama
    mobilebert modernbert mpnet musicgen nanochat nemotron-nas olmo orion pegasus persimmon phi4mm phimoe pixtral
    prophetnet qwen2_vl rembert roberta roformer skywork smollm solar step3 switch_transformers umt5 vaultgemma vit
    whisper xglm xlm-roberta xlnet xmod yi
    """.split()
)
"""Other architectures: not misspellings of those that are read."""
