"""What the reader knows of words: meanings, and the phrases that say them (grammar.py).

A phrase says what people mean, not what one source prints; evidence for readings that are not plain words is beside
them (K: the software's documentation, C: calibration rows). `tests/measured/test_phrases.py` takes each away and
names the sources whose rows change.
"""

from collections.abc import Mapping
from types import MappingProxyType

from costmodel.measured.rows.words.formats import GRADIENTS as GRADIENTS
from costmodel.measured.rows.words.formats import PRECISIONS as PRECISIONS
from costmodel.measured.rows.words.formats import SCALINGS as SCALINGS
from costmodel.measured.rows.words.formats import STATES as STATES
from costmodel.measured.rows.words.formats import SUBMISSIONS as SUBMISSIONS
from costmodel.measured.rows.words.offloads import OFFLOADS
from costmodel.measured.rows.words.software import FOLDED as FOLDED
from costmodel.measured.rows.words.software import SCHEDULES as SCHEDULES
from costmodel.measured.rows.words.software import SHARDINGS as SHARDINGS
from costmodel.measured.rows.words.software import SOFTWARE_NAMES as SOFTWARE_NAMES
from costmodel.measured.rows.words.software import releases

_COMM = "comm*"
_DATA = "dp|data_parallel*|gradient|grad|grad_reduce|param*_gather|weight_gather|reduce_scatter|all_reduce|optimizer"
_MIXED = "expert*|ep|moe|all_to_all|a2a|dispatch*"
_HIDDEN = "overlap*|hide|hiding|hidden_behind|hidden_under|hidden_by|fully_hidden|completely_hidden|entirely_hidden"
_RECOMPUTE = "recomput*|checkpointing|checkpoint|checkpointed|ckpt|ckpting|remat*|rematerial*|ac"

_MODULES = "layer_norm|rms_norm|norm|swiglu|gelu|moe_act*|activation_function|up_proj*|mla_up_proj|mlp|ffn|feed_forward"
_MODULES += "|shared_experts~"

FLAGS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "overlap_data": (f"{_DATA} & {_HIDDEN}", "async* gradient|grad|dp|data_parallel*"),
    "async_tp": (
        f"tp|tensor|tensor_parallel* & {_HIDDEN}",
        "async* tp|tensor|tensor_parallel*",
        "userbuffer* & overlap*",
        "ub overlap*",
    ),
    "overlap_pipeline": (
        f"pp|pipeline|pipeline_parallel*|p2p|send_recv & {_HIDDEN}",
        "async* p2p|pipeline_parallel*",
    ),
    "overlap_expert": (f"{_MIXED} & {_HIDDEN}", "dual pipe*", "delay* wgrad"),  # K: DualPipe hides it (DeepSeek-V3)
    "overlap_any": (f"{_COMM} & {_HIDDEN}", "overlap* of? all|any? comm*|collective*", "overlap!"),
    "sequence_parallel": ("sequence|seq parallel*", "sp!"),
    "whole_sequences": ("tp mode all_reduce",),  # K: nanotron's, beside REDUCE_SCATTER
    "context_parallel": ("context parallel*", "cp!"),
    "tensor_in_node": (
        "tp|tensor_parallel*|model_parallel* & in|within|inside a|one|each|the? node|host|server",
        "intra node tp|tensor_parallel*|model_parallel*",
        "replica|copy per|in each? node|host|server & tp|tensor*",
        "tp|tensor_parallel*|model_parallel* spans|spanning|fills|covers a|one|the whole|full|entire? node~|host~",
        "tp|tensor_parallel*|model_parallel* & all|the gpus|devices|accelerators of|in a|one|each|the node~|host~",
    ),
    "shared_accumulation": (
        "accum* steps? & divided|split|shared by|over|across|among",
        "accum* steps & over|across|among|summed all|the rank*|gpu*|device*|process*",
        "nano_gpt",  # K: its `train.py`
    ),
    "uniform_recompute": (f"{_RECOMPUTE} & uniform*",),
    "first_dense": ("first layer is? dense",),
    "alternate_experts": ("moe|expert* & every|each other|second|2nd|two|2 layer*", "moe|expert* & alternat* layer*"),
    "whole_heads": ("ulysses|alst", "cp|context_parallel* & all_to_all|a2a"),
    "multi_token": ("mtp num? layer*|module*|depth*?", "multi_token predict*", "nextn predict* layer*"),
    "untied": ("untied", "embed* & not tied"),
    "compiled": ("torch compile*", "torch_dynamo|torch_inductor|inductor", "compile* model", "compile!", "float8",
        "compile* full|whole|each|per graph|fullgraph|block|model"),
    "eager": ("eager",),
    "hugging_face": ("axolotl|trl|ms_swift", "llama factory", "hf|hugging_face|transformers trainer"),  # whose modules
    "fused_layers": ("liger*",),  # K: its norms, gates and rotations are one kernel each
    "fused_norms": ("colossal|colossalai",),  # K: its benchmarks set `enable_fused_normalization`
    "parallel_block": (
        "parallel transformer? block|layer*",
        "parallel attention|attn & mlp|ffn|feed_forward",
        "parallel residual*",
    ),
    "sliding_window": ("sliding window*", "swa", "windowed attention", "local attention"),
    **OFFLOADS,
    "optimizer_sharded": ("megatron deep_speed",),  # K: ZeRO 1 in its examples; C: its rows fit in no other way
    "fast_dispatcher": ("deepep|deep_ep", "hybridep|hybrid_ep"),
    "selective_layers": (
        f"selective layer* {_RECOMPUTE}",
        f"{_RECOMPUTE} & every other|second|two|2nd|2 transformer? layer*|block*",
        f"{_RECOMPUTE} & alternat* layer*|block*",
        "selective ac option 2",  # K: torchtitan, every second layer
    ),
    "offloaded_projections": ("qkv proj* offload*", "remat policy & custom"),  # K: tpu-recipes' custom policy
    "fused_loss": (
        "fused|fusion & cross_entropy|ce|ce_loss|loss",
        "compile* cross_entropy|ce|ce_loss|loss",
        "foundry",  # K: flash-attention's
    ),
    # K: `cross_entropy_fusion_impl` te: Megatron-Bridge, NeMo's scripts since 25.04 (96578928a7), DGX Cloud since 25.05
    "engine_loss": (
        "te|transformer_engine & cross_entropy|ce|ce_loss",
        "megatron bridge",
        f"nemo framework|megatron? container? {releases(25, 4)}",
        f"{releases(25, 4)} nemo framework? container",
        f"dgxc|dgx_cloud & v? {releases(25, 5)}",
    ),
    "chunked_loss": ("chunk*|tiled|tiling|linear|cut|streamed & cross_entropy|ce|ce_loss|loss|logit*", "liger*"),
    # K: BigScience prints what nvidia-smi shows; Primus' log "hip mem usage", which is `mem_get_info`: total less free
    "device_memory": (
        "nvidia|rocm|amd|hl|npu|xpu smi",
        "nvml|pynvml|dcgm|gpustat|nvitop",
        "mem get info",
        "hip|rocm max? mem|memory",
        "bigscience|big_science",
        "primus",
    ),
    # K: ColossalAI's benchmarks print `max_memory_allocated` of their first rank
    "allocated_memory": (
        "max memory? allocated",
        "memory|mem|peak & allocated",
        "memory|mem alloc",
        "max ma",  # K: DeepSpeed's `see_memory_usage`, beside CA, of what is cached
        "max|peak active memory|mem|bytes?",
        "colossal|colossalai",
    ),
    # the largest of many ranks; nobody says of which, the figure is of the first
    "memory_of_all": (
        "max*|worst|highest|largest|peak memory|mem? usage|reserved? over|across|among|of all? the? rank*|gpu*|stage*",
        "worst|fullest|heaviest rank|gpu|device|stage|node",
        "max*|largest on|over|of the? first and? last node*|rank*|stage*",
        "rocm max mem|memory",  # K: Primus' log, beside what its last rank sees
    ),
    # K: Primus prints what its last rank sees (`print_rank_last_patches.py`), torchtitan what a rank of the last stage
    # does (`metrics.py`, `_get_metrics_rank`)
    "memory_of_last": (
        "memory|mem|reserved|allocated & last rank",
        "memory|mem of|on|from the? last stage",
        "primus",
        "torchtitan|torch_titan",
    ),
    "memory_of_first": (  # which the source's name cannot say otherwise
        "memory|mem|reserved|allocated & of|on|from the? first pipeline? stage|rank",
        "memory|mem|reserved|allocated & of|on|from rank 0",
        "first pipeline? stage memory|mem",
    ),
    "pure_narrow": (
        "pure bf16|bfloat16|fp16|half|16_bit",
        "no|without a? fp32|float32|32_bit? master*",
        "no|without an|a? fp32|float32|32_bit copy|copies",
    ),
    "wide_masters": ("fp32|float32|32_bit master*", "master* in|at|of fp32|float32|32_bit"),
    # K: torchao's float8 with `enable_fsdp_float8_all_gather`, as torchtitan's documents run it
    "gathers_8bit": ("float8", "fp8|float8|8_bit all_gather*|param*_gather|weight_gather"),
    "graphs": ("cuda|hip graph*", "gpu|device graphs~", "graph* capture*", "captur* graph*", "cudagraph*"),
    "whole_graph": (
        "full*|entire* captur* iteration|step",
        "full*|whole|entire|complete captur*|training? iteration|step & graph*|captur*",
        "graph* & full|whole|entire iteration|step|model",
        "scope full|whole|entire iteration|step",
    ),
})  # fmt: skip
"""Yes or no: a meaning and the phrases that say it. What is denied is a no, what nobody says is neither."""

_RECOMPUTED = "recomput*|checkpointing|checkpoint|ckpt|remat*"
_BATCH_OF = "per|a|each gpu|device|chip|rank|dp"

_ACROSS = "across|over|within|among|on|spans|spanning the|all? #"
_DEVICES = "gpu*|device*|rank*|chip*|accelerator*|card*|core*"  # nodes hold several

NUMBERS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "offload_layers": (
        "activation* offload* of? #",
        "offload* activation* of? #",
        "offload* num? layer* #",
        "offload* of? # layer*",
        "# layer* offloaded",
    ),
    "recompute_layers": (
        "recomput*|remat* num? layer* #",  # K: `checkpoint-num-layers` of older Megatron are those of a group
        f"{_RECOMPUTED} only? of|in|on|for? the? first? # layer*",
        "# layer* fully? recomputed|checkpointed",
    ),
    "head_size": ("head dim*|size #", "heads of #", "# dim* heads"),
    "kv_heads": ("# kv|key_value heads", "kv heads #", "gqa groups? #", "num? query groups #", "# query groups"),
    "dense_layers": (
        "first k dense replace? #",
        "# dense ffn|mlp? layer*",
        "first # layer* are? dense",
        "dense layer* #",
    ),
    "shared_experts": ("# shared expert*?", "shared experts #"),
    "mtp_layers": ("# mtp layer*|module*|depth*|head*", "mtp num? layer*|module*|depth* #",
        "nextn predict* layer* #"),
    "top_k": ("top k? #", "# active|activated expert*"),
    "window": ("window size? #",),
    "accumulation": (
        "gradient|grad? accum* steps|count|factor? #",
        "gradient|grad acc steps|count|factor? #",
        "ga|gas #",
        "num|number of? micro_batch* #",
        "micro_batch* number|count #",
        "micro num #",
        "# gradient|grad? accum*",
        "accum* over # step*|micro_step*|micro_batch*",
        "# micro_batches",
        "micro_batches~ #",
    ),
    "micro_batch": ("micro_batch~|micro_bsz|micro_bs~|mbs size? per? gpu|device? #",
        "micro_batches~ of # sequence*|sample*", "# sequence|sample micro_batch", "micro~ #"),
    "local_batch": (
        "local batch size? #",
        "per? device|gpu|rank train? batch size? #",
        f"batch|bs|bsz size? {_BATCH_OF} #",
        f"batch|bs size? # sequence*|sample*? {_BATCH_OF}",
        f"# sequence*|seq|sample* {_BATCH_OF}",
    ),
    "virtual_stages": (
        "vpp|vp size? #",
        "virtual pipeline|pp model? parallel? size|degree|stages|chunks? #",
        "virtual stages? #",
        "# way vpp|virtual|interleav*",
        "interleav* pipeline|pp? degree|factor|size #",
        "interleav* pipeline|pp #",
        "model chunks #",
        "# virtual|interleaved pipeline? stage*|chunk*",
        "# stage*|chunk* per|a|each|on each? rank|gpu|device|stage",
        "# model? chunk* & interleav*|1f1b",
        "interleav*|1f1b & # model? chunk*",
        "# model chunk*",
    ),
    "virtual_layers": (
        "num? layers per virtual pipeline? stage #",
        "# layer* per|a|each virtual pipeline? stage|chunk",
        "# layer* per|a|each model? chunk",
    ),
    "tensor": (
        "tp size|degree? #",
        "tp sp size|degree? #",
        "tensor model? parallel* world? size|degree? #",
        "tensor slicing degree? #",
        "model_parallel* size|degree? #",
        "# way tensor|tp|model|operator|op|intra_op|megatron",
        "mp #",
        "tensor|model degree|axis #",
        f"tp|tensor_parallel*|model_parallel* {_ACROSS} {_DEVICES}",
    ),
    "pipeline": (
        "pp size|degree? #",
        "pipeline|pipe model? parallel* world? size|degree? #",
        "# deep pipeline",
        "# way zero_bubble|interleaved|virtual? pipeline|pp",
        "pipeline|pp parallel*? of? depth|degree|size|axis #",
        "# pipeline stage*",
        "# stage* & pipelin*|gpipe|1f1b",
        "# partition* & gpipe",
        f"pp|pipeline_parallel*|pipelined|pipelining|gpipe {_ACROSS} "
        "stage*|partition*|node*|host*|server*|gpu*|device*|pod*",
    ),
    "context": (
        "cp size|degree? #",
        "context parallel* world? size|degree? #",
        "# way context|cp|ring|ulysses",
        "ulysses sp|sequence_parallel*? size|degree? #",
        f"over|across|on|among the|all? # {_DEVICES} & ulysses|ring_attention|sequence_parallel*|context_parallel*",
        "ring attention|attn over|across|on|size|degree #",
        "ring size|degree #",
    ),
    "data": ("dp|data_parallel* world? size|degree? #", "data degree|axis #", "# way data|dp"),
    "expert": ("ep size|degree? #", "expert model? parallel* size|degree? #", "# way expert|ep",
        f"ep|expert_parallel* {_ACROSS} {_DEVICES}",
        f"experts distributed|sharded|spread|split|placed? {_ACROSS} {_DEVICES}"),
    "expert_tensor": ("etp size|degree? #", "expert tensor parallel* size|degree? #"),
    "offload_share": ("offload* with|at|by? a? frac*|ratio|share #",),
    "global_batch": ("# gbs","global|total|effective|overall batch size? #", "gbs #", "batch size? ramp* to #",
        "# sequence*|sample* per|in|a|each optimizer? step|batch|iteration"),
    "batch": ("batch|bs|bsz size? #",),  # of a step or of a rank
    "sequence": ("sequence|seq|context len|length #", "sequence|seq #"),
    "ulysses": ("ulysses sp|sequence_parallel*? size|degree? #", "# way? ulysses", "ulysses # way"),
    "sequence_ranks": ("sequence_parallel* size|degree? #", "sp size|degree? #", "# way sequence_parallel*|sp"),
    "model_ranks": (
        f"# {_DEVICES} per|a|each model? replica|copy|instance",
        f"replica|copy|copies|instance of|on|over # {_DEVICES}",
    ),
    "stage_layers": ("# transformer? layer*|block* per|a|each|in_each pipeline? stage",),
    "head_parallel": ("head parallel* size|degree? #", "# way head parallel*"),
    "ring": ("ring attention|attn? size|degree? #", "# way? ring"),
    "power_w": ("tdp #", "power cap|limit|capped|limited #", "# w|watt* cap|limit|tdp|power"),
    "layers": ("truncated|cut|reduced|shortened|proxy down? # layer*", "truncated|proxy model? with? # layer*",
        "# layer* only|proxy"),
})  # fmt: skip
"""Numbers: a meaning and the phrases whose number it is."""

OPTIMIZERS = (
    ("8_bit|8bit|int8 adam*|optimizer*|optimiser*|optim", "adam_8bit"),
    ("adam*|optimizer*|optimiser*|optim bnb|bitsandbytes|paged? 8_bit|8bit", "adam_8bit"),
    ("muon", "muon"),
    ("adafactor|ada_factor", "adafactor"),
    ("sgd|lion", "sgd"),  # one state each
)
"""Optimizers by name; of several the one that has the matrices (Muon leaves Adam the embeddings)."""

DISPATCHERS = (
    ("all_gather & dispatch*", "all_gather"),
)  # fmt: skip
"""What sends tokens to their experts."""

ABSENT: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "tensor": ("tp", "tensor|model|operator parallel*"),
    "pipeline": ("pp", "pipeline parallel*", "pipelining"),
    "context": ("cp", "context parallel*"),
    "expert": ("ep", "expert parallel*"),
})  # fmt: skip
"""Degrees that are one where these words are denied."""

ATTENTIONS = (
    ("use|enable flash_attention|flash_attn|flash|fa 1", "flash"),  # a switch, not a version
    ("sdpa|sdp & math|eager|naive", "unfused"),  # K: PyTorch's backends
    ("fa|flash|flash_attention|flash_attn v? 3", "flash_3"), ("fa|flash|flash_attention|flash_attn v? 4", "flash_3"),
    ("cudnn|cu_dnn", "flash_3"), ("splash|pallas", "flash_3"), ("aiter", "flash_3"),
    # C: llm-foundry's rows, whose settings name Triton's FlashAttention; Dao 2023 (FlashAttention-2), figure 4
    ("ao_triton", "flash_2"), ("composable kernel*", "flash_2"), ("fa|flash*|attention|attn|backend & ck", "flash_2"),
    ("te|transformer_engine with|via|on ck", "flash_2"),
    ("triton", "flash_1"),
    ("fa|flash|flash_attention|flash_attn v? 2", "flash_2"), ("torch? sdpa", "flash_2"),
    ("flex attention|attn", "flash_2"), ("scaled dot product attention", "flash_2"), ("xformers", "flash_2"),
    ("fa|flash|flash_attention|flash_attn v? 1", "flash_1"),
    ("te", "flash_3"), ("transformer engine", "flash_3"),
    ("flash|flash_attention|flash_attn", "flash"), ("fused attention", "flash"), ("memory efficient", "flash_2"),
    ("unfused", "unfused"), ("naive|vanilla|standard|math|eager|core attention|attn", "unfused"),
    ("fused|scaled|masked scaled? masked? softmax", "unfused"), ("softmax & dropout|kernel", "unfused"),
    ("bmm|baddbmm", "unfused"),
)  # fmt: skip
"""Attention kernels by name; `flash` is the one that the software calls."""

RECOMPUTED = (_RECOMPUTE,)

_SAVE = "minimal|dots|save*|custom|qkv*"
_POLICIES = (("nothing saveable|savable", "full"), ("everything saveable|savable", "none"))
RECOMPUTES = (
    # K: policies of JAX's checkpoints say what may be kept
    *_POLICIES, ("remat*|policy & save* nothing", "full"),
    (f"full* gradient|activation|grad|act|layer|block {_RECOMPUTE}", "full"),
    (f"full* {_RECOMPUTE}", "full"), ("recompute* activations full*", "full"),
    (f"selective|selectively|sel & {_RECOMPUTE}", "selective"),
    ("sac", "selective"), (f"partial {_RECOMPUTE}", "selective"),
    ("recompute* activations", "selective"),  # K: Megatron's --recompute-activations
    (f"core|attention|attn|mla & {_RECOMPUTE}", "selective"),
    (f"{_RECOMPUTE} of? the? whole|entire|full moe|expert layer*", "full"),
    (f"whole|entire moe|expert layer* is|are? {_RECOMPUTE}", "full"),
    (f"{_RECOMPUTE} & {_MODULES}", "selective"), (f"moe|expert layer* & {_RECOMPUTE}", "selective"),
    (f"selected|chosen|cheap|fine_grained & {_RECOMPUTE}", "selective"),
    (f"part|some|several of? the? operator*|op|module* & {_RECOMPUTE}", "selective"),
    (f"remat* & {_SAVE}", "selective"),
    (f"full* & {_RECOMPUTE}", "full"),
    (f"every|everywhere|always|throughout|all|each|entire|whole & {_RECOMPUTE}", "full"),
    ("the? other*|rest|remaining & recompute*|recomputed", "selective"),
    (f"checkpoint* policy & {_SAVE}", "selective"),
    (f"{_RECOMPUTE} & layer|block boundar*", "full"),
    (f"{_RECOMPUTE} & layer_wise|layerwise|per_layer|per_stage|block|uniform", "full"), ("use checkpoint", "full"),
    ("transformer? block|layer is|are? checkpointed|recomputed", "full"),
    (f"{_RECOMPUTE} & # layer*|block*", "full"), (f"{_RECOMPUTE} ratio|fraction|share|proportion", "full"),
    (f"{_RECOMPUTE} & of|the|all|decoder|transformer|encoder layers~|blocks~", "full"),
    ("gradient|activation|grad|act|layer checkpointing|checkpoint|ckpt|ckpted|recompute*|recomputation", "full"),
    (f"{_RECOMPUTE} num layer*", "full"), ("selective!", "selective"),
    ("recompute*!", "full"), ("checkpoint*|ckpt of? the? activations", "full"),  # K: Megatron's flag before 2022
    ("checkpointing|checkpoint|ckpt|remat*|recomputation|ac!", "full"), (f"{_RECOMPUTED} # %", "full"),
)  # fmt: skip
"""What is computed again, in notes: `True` ones are modes, and any of them denied is none at all."""

RECOMPUTE_CELLS = (
    *_POLICIES,
    ("selective|sel|fine_grained", "selective"), ("partial", "selective"), ("sac", "selective"), ("op", "selective"),
    ("minimal*|dots|save*|custom|qkv*", "selective"), ("core|attention|attn", "selective"),
    # K: Megatron-Core's recompute modules
    (_MODULES, "selective"),
    ("full", "full"), ("all|every|entire|whole|block|uniform|layer*", "full"),
    ("gradient|activation|grad|act checkpoint*|ckpt", "full"), ("checkpoint*|ckpt|remat*|recomput*|ac|gc", "full"),
)  # fmt: skip
"""The same in the column, where nothing else is spoken of."""
