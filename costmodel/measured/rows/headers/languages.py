"""Names of columns in German, French, Spanish and Chinese, in the English words by which columns are known."""

import re

_SIZES = (
    (r"^\s*(?:anzahl|stückzahl|cantidad)\s*$", "count"),
    (r"\b(?:beschleuniger|gpu|karten|chip)s?[\s\-]*(?:an)?zahl\b", "num gpus"),
    (r"modell[\s\-]*größe|taille (?:de |du )?modèle|tamaño (?:de |del )?modelo", "model size"),
    (r"\bmrd\b\.?|\bmilliards?\b|\bmilliarden\b", "billion"),
    (r"\bmio\b\.?|\bmillionen\b|\bmillones\b", "m"),
    (r"anzahl(?: der)?|zahl der|nombre (?:de |d['\u2019]\s*)|nb\.? (?:de |d['\u2019]\s*)|n[uú]mero de ", "num "),
    (r"(?:globale?r?|gesamte?)[\s\-]*(?:batch|stapel)[\s\-]*gr(?:öß|oess|öss)e", "global batch size"),
    (r"micro[\s\-]*batch[\s\-]*gr(?:öß|oess|öss)e", "micro batch size"),
    (r"mi[kc]ro[\s\-]*stapel(?:[\s\-]*gr(?:öß|oess|öss)e)?", "micro batch size"),
    (r"mikro[\s\-]*batch(?:[\s\-]*gr(?:öß|oess|öss)e)?", "micro batch size"),
    (r"(?:batch|stapel)[\s\-]*gr(?:öß|oess|öss)e", "batch size"),
    (r"(?:taille (?:de |du )?)?micro[\s\-]?lot", "micro batch size"),
    (r"(?:taille (?:de |du )?)?lot (?:global|total)e?|taille (?:de |du )?batch globale?", "global batch size"),
    (r"taille (?:de |du )?(?:lot|batch)", "batch size"),
    (r"tamaño (?:de |del )?micro[\s\-]?lote", "micro batch size"),
    (r"tamaño (?:de |del )?(?:lote|batch) global", "global batch size"),
    (r"tamaño (?:de |del )?(?:lote|batch)", "batch size"),
    (r"sequenz[\s\-]*l(?:ä|ae)nge|longueur (?:de |des )?s(?:é|e)quences?|longitud de secuencia", "seq length"),
    (r"kontext[\s\-]*l(?:ä|ae)nge|longueur (?:de |du )?contexte|longitud de contexto", "context length"),
    (r"schritt[\s\-]*(?:zeit|dauer)|iterations[\s\-]*(?:zeit|dauer)|(?:temps|durée) d['\u2019]\s*étape", "step time"),
    (r"(?:zeit|dauer)\s*(?:pro|je|/)\s*(?:schritt|iteration)|temps\s*/\s*(?:étape|itération)", "time per step"),

    (r"(?:temps|durée) (?:par|d['\u2019]) ?(?:étape|itération|pas)|tiempo por (?:paso|iteración)", "time per step"),
    (r"\b(?:grafik)?karten\b|\bcartes\b|\btarjetas\b|\baccélérateurs\b|\baceleradores\b", "gpus"),
    (r"\bbeschleuniger\b|\baccélérateur\b|\bacelerador\b|\bgrafikkarte\b|\bmatériel\b", "accelerator"),
    (r"\b(?:rechen)?knoten\b|\bn(?:œ|oe)uds?\b|\bnodos?\b", "nodes"),
    (r"\btyp\b|\btipo\b", "type"),
    (r"\bgesamt\b|\bau total\b", "total"),
    (r"\bmodell\b|\bmodèle\b|\bmodelo\b", "model"),
    (r"\bschichten\b|\bcouches\b|\bcapas\b", "layers"),
    (r"\bparamètres\b|\bparámetros\b", "parameters"),
    (r"spitzen[\s\-]*speicher", "peak memory"),
    (r"speicher[\s\-]*(?:verbrauch|bedarf|nutzung)?|mémoire|memoria", "memory"),
    (r"durchsatz|débit|rendimiento", "throughput"),
    (r"genauigkeit|präzision|précision|precisión|datentyp", "precision"),
    (r"tensor[\s\-]*parallelität|parallélisme (?:tensoriel|de tenseurs?)|paralelismo (?:de )?tensor(?:ial|es)?", "tp"),
    (r"pipeline[\s\-]*parallelität|parallélisme (?:de )?pipeline|paralelismo (?:de )?pipeline", "pp"),
    (r"daten[\s\-]*parallelität|parallélisme (?:de |des )?données|paralelismo (?:de )?datos", "dp"),
    (r"expert(?:en)?[\s\-]*parallelität|parallélisme d['\u2019]\s*experts|paralelismo (?:de )?expertos", "ep"),
    (r"kontext[\s\-]*parallelität|parallélisme (?:de )?contexte|paralelismo (?:de )?contexto", "cp"),
    (r"neuberechnung|rekomputation|\brecalcul\b|recálculo", "recompute"),
    (r"bemerkung(?:en)?|anmerkung(?:en)?|kommentare?|remarques?|observaciones|notas", "notes"),
    (r"\blogiciel\b|\brahmenwerk\b", "software"),
    (r"jetons?", "tokens"),
)  # fmt: skip
_CHINESE = (
    ("全局批(?:大小|量|次(?:大小)?)", "global batch size"),
    ("微批(?:大小|量|次(?:大小)?)?", "micro batch size"),
    ("批(?:大小|量(?:大小)?|次大小)", "batch size"),
    ("(?:序列|上下文)长度", "seq length"),
    ("(?:卡|gpu|npu|加速卡)(?:数量|数|个数)", "gpus"),
    ("节点数量?", "nodes"),
    ("加速卡(?:型号)?|卡型|gpu型号|硬件|芯片(?:型号)?", "hardware"),
    ("(?<=/)卡|每卡", "gpu"),
    ("模型", "model"),
    ("张量并行度?", "tp"),
    ("流水线?并行度?", "pp"),
    ("数据并行度?", "dp"),
    ("专家并行度?", "ep"),
    ("(?:单步|每步|迭代|步)(?:时间|耗时)", "step time"),
    ("峰值显存", "peak memory"),
    ("显存(?:占用)?", "memory"),
    ("精度", "precision"),
    ("重计算", "recompute"),
    ("吞吐(?:量|率)?", "throughput"),
    ("层数", "layers"),
    ("参数量", "parameters"),
    ("备注", "notes"),
    ("毫秒", "ms"),
    ("秒", "s"),
    ("（", "("),
    ("）", ")"),
)
_SMALL_WORDS = ((r"\b(?:pro|je|par|por)\b", "per"), (r"\bsek(?:unden?)?\b|\bsecondes?\b|\bsegundos?\b", "s"))
"""Words that are others in English, read where the rest of the name is foreign, or no English letters are in it."""
_COMPILED = tuple((re.compile(pattern), f" {english} ") for pattern, english in (*_SIZES, *_CHINESE))
_SMALL = tuple((re.compile(pattern), english) for pattern, english in _SMALL_WORDS)


def in_english(name: str) -> str:
    """The name of a column, in small letters, with foreign words in English."""
    told = name
    for pattern, english in _COMPILED:
        told = pattern.sub(english, told)
    if told == name and re.search(r"\b(?:sekunde|seconde|segundo|token|jeton)", name) is None:
        return name
    for pattern, english in _SMALL:
        told = pattern.sub(english, told)
    return " ".join(told.split())
