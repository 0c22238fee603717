"""Megatron-LM: flags of `pretrain_gpt.py`.

Names: NVIDIA/Megatron-LM, megatron/training/arguments.py at 000c4ac (stored copy; since 2026 many flags are generated
from dataclasses under the same names) and megatron/core/model_parallel_config.py at 02aa3ee. Megatron takes the world
size from its environment: the number of accelerators stands in the first comment, and data parallelism follows.

How fields are read: ZeRO 1 is `--use-distributed-optimizer`; 2 and 3 are Megatron-FSDP's sharding strategies; ranks
that share weights are all over `--num-distributed-optimizer-instances`. Partial full recompute is the method `block`,
which counts layers of each chunk. Optimizer states on the host (`--optimizer-cpu-offload`) are also updated there.
Overlapped transfers between stages exist with interleaving only, overlapped tensor traffic with sequence parallelism
only (`validate_args`). An expert's tensor degree is that of the layer unless given.
"""

from optimize.launch import text as _text
from optimize.launch.framework import Framework
from optimize.launch.megatron_model import model_read
from optimize.launch.megatron_read import megatron_fields
from optimize.launch.megatron_rules import ALTERNATIVES, apart, elsewhere, rules
from optimize.launch.megatron_words import SIGNS
from optimize.launch.megatron_write import megatron_settings

ABOUT_MODEL = frozenset(
    """
    num-layers hidden-size ffn-hidden-size num-attention-heads group-query-attention num-query-groups kv-channels
    max-position-embeddings position-embedding-type use-rotary-position-embeddings rotary-base rotary-percent swiglu
    normalization norm-epsilon disable-bias-linear add-qkv-bias untie-embeddings-and-output-weights num-experts
    moe-ffn-hidden-size moe-router-topk moe-layer-freq moe-shared-expert-intermediate-size vocab-size tokenizer-type
    tokenizer-model data-path split mock-data data-cache-path num-workers train-iters train-samples lr min-lr
    lr-decay-style lr-decay-iters lr-warmup-iters lr-warmup-fraction weight-decay clip-grad adam-beta1 adam-beta2
    adam-eps init-method-std attention-dropout hidden-dropout seed save load save-interval ckpt-format log-interval
    log-throughput eval-interval eval-iters tensorboard-dir wandb-project wandb-exp-name distributed-backend
    distributed-timeout-minutes transformer-impl nnodes nproc-per-node node-rank rdzv-backend rdzv-endpoint master-addr
    master-port use-mcore-models moe-grouped-gemm moe-permute-fusion moe-router-load-balancing-type moe-aux-loss-coeff
    moe-router-dtype moe-router-num-groups moe-router-group-topk moe-router-score-function
    moe-router-enable-expert-bias moe-router-topk-scaling-factor multi-latent-attention q-lora-rank kv-lora-rank
    qk-head-dim qk-pos-emb-head-dim v-head-dim qk-layernorm window-size window-attn-skip-freq softmax-type
    quick-geglu squared-relu glu-linear-offset activation-func-clamp-value no-gradient-accumulation-fusion manual-gc
    manual-gc-interval log- tensorboard- wandb- tokenizer- lr- train- valid- test- eval- exit- no-load- no-save- load-
    ckpt- dist-ckpt- rope- rotary- yarn- rdzv- loss-scale initial-loss-scale min-loss-scale loss-scale-window hysteresis
    vocab-file merge-file data-impl data-args-path per-split-data-args-path dataloader-type no-rope-fusion jobid
    max-restarts tee wait kill-on-bad-exit kill-switch-path finetune deepspeed-config reset-progress
    abort-on-unmet-fused-kernel-constraints tiktoken-pattern no-mmap-bin-files no-create-attention-mask-in-dataloader
    make-vocab-size-divisible-by padded-vocab-size pad-vocab-size-to apply-layernorm-1p attention-softmax-in-fp32
    """.split()
)

FRAMEWORK = Framework(
    name="megatron",
    title="Megatron-LM",
    version="core 0.20 (d98e8a64, 2026-08-22)",
    file="launch-megatron.sh",
    alternatives=ALTERNATIVES,
    settings=megatron_settings,
    fields=megatron_fields,
    rules=rules,
    apart=apart,
    elsewhere=elsewhere,
    dump=_text.dump_flags,
    parse=_text.parse_flags,
    signs=SIGNS,
    hint=rf"--(?:{'|'.join(sorted(SIGNS)).replace('-', '[-_]')})",
    about_model=ABOUT_MODEL,
    model=model_read,
)
