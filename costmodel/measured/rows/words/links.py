"""Links in words: bytes per second between nodes and inside them, per accelerator and direction."""

import math
import re
from collections.abc import Iterator

_BITS = {"edr": 100e9, "hdr": 200e9, "ndr": 400e9, "xdr": 800e9}  # of one port of each generation of InfiniBand
_CARDS_BITS = {"5": 100e9, "6": 200e9, "7": 400e9, "8": 800e9}  # NVIDIA's data sheets of ConnectX-5 to 8, one card
_RATE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)[\s-]?([GgTt])([Bb](?:it|yte)?s?)?(/s(?:ec)?|ps|E)?(?!\w)")
_SAME = 0.01
_ALL_LINKS = 7.5  # times what is usual: also those inside a node (Gaudi's 24 ports)
_LINKS_OF_NODE = 4  # as many as accelerators: one each
_SLOW = 50e9 / 8  # bytes per second, up to which a link is the node's only one where more is usual (10 GbE)
_OMNI_PATH_BYTES_PER_S = 21e9 / 8
"""What one channel of NCCL carries over Omni-Path without Intel's plug-in, by verbs. All-reduces of 4 GB over 4 nodes
of Jean Zay: .709 s on V100 (4 channels of 4 GPUs), 1.529 s on A100 (2 channels), 85 and 41 Gb/s of the four links' 400.
Source: bigscience-workshop/bigscience, `experiments/bandwidth`, January 2022 (55 Gb/s on 16 nodes of V100)."""
_PCIE_BYTES_PER_S = {300e9: 32e9, 450e9: 64e9}  # 16 lanes of the generation of an accelerator with such links
_COUNTS = (
    r"(?<![\w.\-])(\d+)\s*[x*]\s*(?=\d)",  # 4x100, before what else is counted
    r"(?<![\w.\-])(\d+)\s*[x*]\s*(?=[a-z\d])",  # 8x400, 8 x NDR
    r"(?<![\w.\-])(\d+)\s+(?=\d+\s?[gt]|hdr|ndr|edr|xdr|nics?\b|ports?\b|hcas?\b|rails?\b|links?\b|cards?\b|adapters?\b)",
    r"(?<![\w.\-])(\d+)\s+(?![gt](?:b|bits?|bytes?|be|bps|ps)?\b)"  # 400 Gbps counts nothing
    r"(?:[\w\-]+\s+){1,2}(?:nics?|ports?|hcas?|rails?|cards?|adapters?)\b",  # 8 RoCE NICs
    r"(?<![\w.\-])(\d+)\s+(?!(?:nodes?|gpus?|hosts?|servers?|chips?|devices?|ranks?|racks?|switch(?:es)?|tiers?|pods?|islands?|links?|of|per|with|at|and|x)\b)"
    r"[a-z][\w\-]*\s(?=\d+\s?[gt]b?(?:it|ps|/s|e)|[ehnx]dr)",  # 4 Omni-Path 100 Gb/s
    r"(?:gb?/?p?s|[ehnx]dr\d*|g|card)(?:\s(?:efa|ib|infiniband|roce|ethernet|nics?|hcas?|ports?|links?))?\s*[x*]\s*(\d+)\b",
)


def _any_case(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_INSIDE = _any_case(r"nvlink|nvswitch|nvl\d|xgmi|infinity fabric|in[- ](?:the )?node|intra|\bici\b|neuronlink")
_NETWORK = _any_case(
    r"infiniband|\bib\b|roce|ethernet|gbe\b|\befa|rdma|\bnics?\b|[ehnx]dr|connect-?x|\bcx-?\d|inter|between|network"
    r"|slingshot|omni-?path|opa\b|hca|node[- ]to[- ]node|tcpx|rail|fabric"
)
_IN_BITS = re.compile(r"\d\s?[GT]b|\d\s?G\b|\d\s*x\s*\d+\s?[GT]")  # links of a node are told in bytes
_ASIDE = _any_case(r"pcie?\b|storage|management|data bandwidth|controller|not stated|unknown|not published")
_OMNI_PATH = _any_case(r"omni-?\s?path|\bopa\b|\bjean[\s-]zay\W.*\b[av]100")  # whose later nodes have InfiniBand
_CARD = _any_case(r"(?:connect-?x|cx)-?([5-8])\b")
_CHIP_NAME = r"(?:[abhv]\d{2,3}0|g[bh]\d00|mi3\d\d)"
_HOST = r"(?:node|host|server|machine|vm|instance|box)"
_PER_NODE = _any_case(
    rf"(?:per|/|\ba\b|each|every)[\s-]*(?:{_CHIP_NAME}[\w\-]*[\s-])?{_HOST}|node[- ]to[- ]node|\befa\b"
)
_PER_CHIP = _any_case(
    r"(?:per|/|\ba\b|each|every)[\s-]*(?:(?:gpu|chip|accelerator|device|rank|card|nic|xpu|npu|hpu|superchip|gcd)s?\b"
    rf"|{_CHIP_NAME}x?\b(?![\s-](?:system|tray|rack|pod)))"
)


def between_nodes(note: str, per_node: int, usual: float | None = None) -> float | None:
    """Bytes per second, accelerator and direction between nodes, as the note says it; None where it does not.

    `8x200 Gb/s per node`, `400G NDR per GPU`, `4x HDR ConnectX-6 per node`, `8x400G`, `3.2 Tbps`, ... A rate of which
    nobody says whose it is is an accelerator's where that is `usual`, the node's above that and far below it, and
    a little below it one of unknown number. Over Omni-Path no more than what NCCL carries there.
    """
    rates = (_rate(clause, per_node, usual) for clause in _of_network(note))
    printed = next((rate for rate in rates if rate is not None), None)
    return min(_OMNI_PATH_BYTES_PER_S, printed or usual or math.inf) if _OMNI_PATH.search(note) else printed


def _of_network(note: str) -> Iterator[str]:
    """The clauses that are not about links inside a node, nor about storage."""
    for sentence in re.split(r"[;|]|\.\s", _spelt(note)):
        is_inside = False
        for clause in re.split(r"[,(]|\s\+\s", sentence):
            if _NETWORK.search(clause) or _IN_BITS.search(clause):
                is_inside = False
            elif _INSIDE.search(clause):
                is_inside = True
            if not is_inside and not _ASIDE.search(clause):
                yield clause


_BARE = re.compile(r"(?<![\w.])(\d+)\s*x\s*(25|40|50|100|200|400|800|1600)(?![\w.])(?!\s*[GgTt][Bb])")
_IN_WORDS = {"one": "1", "two": "2", "four": "4", "eight": "8", "sixteen": "16"}
_GENERATION = _any_case(r"\b([ehnx]dr)\s(\d{3})\b(?!\s?[gt])")
_WORDED = re.compile(rf"\b(?:{'|'.join(_IN_WORDS)})\b(?=[\s-]+(?:\d|[EHNXehnx][Dd][Rr]|(?:NIC|HCA|port)s?\b))")
_CARDS_BEHIND = _any_case(
    r",\s+(?=\d+\s(?:nics?|hcas?|adapters?|ports?|rails?)\b(?![^,;|]*\d\s?[gt]))"
)  # EDR IB, 4 adapters
_RAILS = _any_case(
    r"(?<!x )\b(dual|quad)[\s-](?:(?:rail|port)(?:ed)?\s+(?=\d|[ehnx]dr)|(?=\d+\s?gb?(?:/s|ps|it)|[ehnx]dr))"
)
_PRODUCT = _any_case(r"(?<![\w.])(\d+)\s?x\s?([2-8])\s?x\s?(?=\d+\s?[gt]b?)")
_PORTS = _any_case(r"(?<![\w.])(\d+)\s?x\s(dual|quad)[\s-]port\s+(?=[ehnx]dr)")
_IN_BRACKETS = re.compile(r"\(([^()]*\d\s?[GTgt](?:b|B)?[^()]*)\)")


def _spelt(note: str) -> str:
    """The note with the unit of `8x200`, and rates out of brackets that say whose they are: `4x NIC (200 Gb/s)`."""
    note = _GENERATION.sub(r"\1\2", note)
    note = _WORDED.sub(lambda found: _IN_WORDS[found[0].lower()], note)
    note = _PORTS.sub(lambda found: f"{int(found[1]) * (2 if found[2].lower() == 'dual' else 4)}x ", note)
    note = _RAILS.sub(lambda found: "2x " if found[1].lower() == "dual" else "4x ", note)
    note = _PRODUCT.sub(lambda found: f"{int(found[1]) * int(found[2])}x", note.replace("\u00d7", "x"))
    note = _CARDS_BEHIND.sub(" ", _BARE.sub(r"\1x\2 Gb/s", note))
    return _IN_BRACKETS.sub(lambda found: f" {found[1]} " if "," not in found[1] else found[0], note)


def _rate(clause: str, per_node: int, usual: float | None) -> float | None:
    """The rate of one clause: of so many cards, of the node, or of each accelerator."""
    rate = _printed(clause)
    if rate is None:
        return None
    counted = _CARD.sub("card", clause)  # whose own number counts nothing
    found = next((found for pattern in _COUNTS if (found := re.search(pattern, counted, re.IGNORECASE))), None)
    count = int(found[1]) if found else 1
    if count > 1 and any(abs(rate - count * each) <= _SAME * rate for each in _rates(clause)):
        return rate / per_node  # 3.2 Tb/s (8 x 400 Gb/s)
    if _PER_CHIP.search(clause) and not _PER_NODE.search(clause):
        count = 1 if count == per_node >= _LINKS_OF_NODE else count  # `100 Gb/s per GPU (8x100G)`
        return count * rate if usual is None or count * rate < _ALL_LINKS * usual else None
    if found or usual is None or _PER_NODE.search(clause):
        return count * rate / per_node
    if rate > usual * (1 + _SAME):
        return rate / per_node
    if rate <= _SLOW and rate < usual * (1 - _SAME):
        return rate / per_node
    return rate if rate > usual * (1 - _SAME) else None


def _printed(clause: str) -> float | None:
    """The largest rate that the clause prints, or that of the generation or the card it names."""
    rates = _rates(clause)
    if rates:
        return max(rates)
    generation = re.search(r"\b([ehnx]dr)(\d*)\b", clause, re.IGNORECASE)
    if generation:  # HDR100, NDR200: ports of fewer lanes
        return (1e9 * float(generation[2]) if generation[2] else _BITS[generation[1].lower()]) / 8
    card = _CARD.search(clause)
    return _CARDS_BITS[card[1]] / 8 if card else None


def _rates(clause: str) -> list[float]:
    return [rate for found in _RATE.finditer(clause) if (rate := _bytes_per_s(found)) is not None]


def _bytes_per_s(found: re.Match[str]) -> float | None:
    """`GB/s` and `GBps` are bytes; `Gb/s`, `Gbps`, `GbE` and a bare `G` are bits; `GB` alone is memory."""
    amount = float(found[1]) * (1e12 if found[2] in "Tt" else 1e9)
    unit = found[3] or ""
    if not (unit.startswith("B") or unit.lower().startswith("byte")):
        return amount / 8
    return amount if found[4] else None


_LINK_BYTES_PER_S = {2: 25e9, 3: 25e9, 4: 25e9, 5: 50e9}  # of one NVLink and direction, by generation: data sheets
_GENERATION_OF = {150e9: 2, 300e9: 3, 450e9: 4, 900e9: 5}  # by what a whole accelerator has
_LINKS = _any_case(
    r"nvlink,?\s*(?:with\s*)?(\d+)\s*(?:inter-?gpu\s*(?:inter)?connect(?:ion)?s?|links?)\b"
    r"|(?<![\w.])(\d+)\s*nvlinks?\s*(?:per|/)\s*gpu"
)


_NO_LINKS = _any_case(
    r"\bpcie?[\s-]*only\b|\b(?:no|without|lacks?) nvlinks?\b|\bnvlinks?:? (?:is )?(?:off|disabled|absent)\b"
)


def inside(note: str, usual: float) -> float | None:
    """Bytes per second inside a node where the note prints it, or how many links; None where it does not.

    A rate above the data sheet's counts both directions. `NVLink 4 inter-gpu connects` are four links of an A100 (C:
    BLOOM's rows, whose tensor traffic takes three times that of twelve); a number that is the accelerator's generation
    of NVLink says nothing of links.
    """
    found = re.search(
        r"(?:nvlink|nvswitch|xgmi)\s*(?:gen\s?\d\s)?:?\s*(\d+(?:\.\d+)?)\s*GB(?:/s|ps)", note, re.IGNORECASE
    )
    if not found and _NO_LINKS.search(note):
        return _PCIE_BYTES_PER_S.get(usual)
    if not found:
        return _of_links(note, usual)
    rate = 1e9 * float(found[1])
    return rate / 2 if rate > 1.05 * usual else rate


def _of_links(note: str, usual: float) -> float | None:
    found, generation = _LINKS.search(note), _GENERATION_OF.get(usual)
    if found is None or generation is None:
        return None
    links = int(found[1] or found[2])
    return None if links == generation else min(usual, links * _LINK_BYTES_PER_S[generation])
