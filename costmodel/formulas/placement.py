"""How a group of ranks lies over the tiers of a cluster.

Ranks are numbered from the inside out (tensor, context, data, pipeline), so each group has a stride: the distance
between two of its members. Rank r sits in domain r // size of a tier.
"""

from collections.abc import Sequence
from itertools import pairwise

from costmodel.inputs import Tier
from costmodel.semantics import Scalar, Semantics, Verdict


def domain_sizes(tiers: Sequence[Tier], domain: Scalar) -> tuple[Scalar, ...]:
    """Ranks in one domain of each tier when `domain` accelerators of each innermost one are used."""
    return tuple(domain * tier.usable_size / tiers[0].usable_size for tier in tiers)


def ranks_by_tier(
    group: Scalar, stride: Scalar, tiers: Sequence[Tier], domain: Scalar, sem: Semantics
) -> tuple[Scalar, ...]:
    r"""Ranks of a group on each tier; their product is the group.

    $c_i = \max(1, \min(g, S_i / s))$ ranks lie in one domain of tier i, and $n_i = c_i / c_{i-1}$: the ranks inside
    the innermost domain, then the number of such parts inside one domain of the next tier, and so on. The last tier
    takes everything. Exact where groups nest (`nests`); elsewhere a mean between the fuller and the emptier domains.
    """
    sizes = domain_sizes(tiers, domain)[:-1]
    inside = [sem.maximum(1.0, sem.minimum(group, size / stride)) for size in sizes] + [group]
    return (inside[0], *(outer / inner for inner, outer in pairwise(inside)))


def nests(group: Scalar, stride: Scalar, size: Scalar, accelerators: Scalar) -> Verdict:
    """Whether every group has the same number of ranks, that of `ranks_by_tier`, in each domain that it touches.

    Exactly if the group is one rank; or all ranks share one domain; or members are a domain apart; or whole blocks of
    groups fill a domain; or whole domains fill a block, each with the same number of members. (A stride that does not
    divide the domain is legal beyond its size: members then never meet. Proof by enumeration in the tests.)
    """
    block = group * stride
    apart = (group == 1) | (accelerators <= size) | (stride >= size)
    return apart | (size % block == 0) | ((size % stride == 0) & (block % size == 0))


def reached(places: Scalar, copies: int) -> Scalar:
    """Places, of those that hold experts, that a token reaches over its copies, in the mean of even routing:
    D (1 - (1 - 1/D)^k) / k."""
    return places * (1 - (1 - 1.0 / places) ** copies) / copies
