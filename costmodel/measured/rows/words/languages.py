"""Words of Chinese, German, French and Spanish notes in English: those of plans, and those that say yes and no."""

import re

_CHINESE = {
    **{"张量": "tensor", "流水线": "pipeline", "流水": "pipeline", "数据": "data", "专家": "expert"},
    **{"上下文": "context", "并行度": "parallel size", "并行": "parallel", "切分": "sharding", "虚拟": "virtual"},
    **{"序列长度": "sequence length", "序列": "sequence", "全重计算": "full recomputation"},
    **{"全量重计算": "full recomputation", "选择性重计算": "selective recomputation", "重计算": "recomputation"},
    **{"分布式优化器": "distributed optimizer", "优化器": "optimizer", "卸载": "offload", "激活": "activation"},
    **{"阶段": "stages"},
    **{"梯度累积": "gradient accumulation steps", "全局批大小": "global batch size", "全局批量": "global batch size"},
    **{"微批大小": "micro batch size", "微批": "micro batch size", "混合精度": "mixed precision"},
    **{"通信": "communication", "重叠": "overlap", "未开启": "disabled", "未启用": "disabled", "不使用": "without"},
    **{"没有": "without", "无": "no", "开启": "on", "启用": "on", "关闭": "off", "使用": "using", "卡": "gpus"},
    **{"\uff0c": ",", "\u3001": ",", "\uff1b": ";", "\u3002": ".", "\uff1a": ":", "\uff08": "(", "\uff09": ")"},
}  # fmt: skip
_GERMAN = {
    **{"ohne": "without", "kein": "no", "keine": "no", "nicht": "not", "mit": "with", "und": "and", "pro": "per"},
    **{"jede": "each", "jeder": "each", "jedes": "each", "schritt": "step", "schritte": "steps", "stufen": "stages"},
    **{"schicht": "layer", "schichten": "layers", "knoten": "node", "optimierer": "optimizer"},
    **{"tensorparallelität": "tensor parallelism", "pipelineparallelität": "pipeline parallelism"},
    **{"datenparallelität": "data parallelism", "sequenzparallelität": "sequence parallelism"},
    **{"gradientenakkumulation": "gradient accumulation steps", "neuberechnung": "recomputation"},
    **{"aktivierungen": "activations", "eingeschaltet": "enabled", "aktiviert": "enabled", "ausgelagert": "offloaded"},
    **{"ausgeschaltet": "off", "deaktiviert": "off", "überlappt": "overlapped", "sequenzlänge": "sequence length"},
    **{"vollständige": "full", "selektive": "selective", "sequenzen": "sequences"},
}
_ROMANCE = {
    **{"recalcul": "recomputation", "complet": "full", "sélectif": "selective", "sans": "without", "avec": "with"},
    **{"couches": "layers", "optimiseur distribué": "distributed optimizer", "déchargement": "offload"},
    **{"recálculo": "recomputation", "completo": "full", "selectivo": "selective", "sin": "without"},
    **{"parallélisme tensoriel": "tensor parallelism", "désactivé": "disabled", "activé": "enabled", "aucun": "no"},
}
_IS_ROMANCE = re.compile(r"\b(?:recalcul|recálculo|sans|avec|parallélisme|optimiseur|couches)\b")
_IS_GERMAN = re.compile(r"\b(?:ohne|keine?|mit|und|jede[rs]?|stufen|\w+parallelität|aktivierungen|schritte?)\b")
_OF_CHINESE = re.compile("|".join(sorted(_CHINESE, key=len, reverse=True)))
_OF_GERMAN = re.compile(rf"\b(?:{'|'.join(sorted(_GERMAN, key=len, reverse=True))})\b")


_OF_ROMANCE = re.compile(rf"\b(?:{'|'.join(sorted(_ROMANCE, key=len, reverse=True))})\b")


def in_english(text: str) -> str:
    """The text, in small letters, with the words of the tables in English."""
    if not text.isascii():
        text = _OF_CHINESE.sub(lambda found: f" {_CHINESE[found[0]]} ", text)
    if _IS_GERMAN.search(text):
        text = _OF_GERMAN.sub(lambda found: _GERMAN[found[0]], text)
    if _IS_ROMANCE.search(text):
        text = _OF_ROMANCE.sub(lambda found: _ROMANCE[found[0]], text)
    return text
