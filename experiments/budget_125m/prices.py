"""What one accelerator costs with so much HBM and second memory: the listed sizes, and all sizes between them.

Prices of the published study (Isaev et al., SC'23, "Calculon", table 3): an H100 without memory 20,000 USD; HBM of 20,
40, 80, 120 GB 2,250, 5,000, 10,000, 20,000 USD; a second memory of 256, 512, 1,024 GB 2,500, 10,000, 20,000 USD; the
network is left out. They are inputs of that study, not market prices.
"""

from collections.abc import Callable
from itertools import product

import numpy as np

GIB = 2.0**30
ACCELERATOR_USD = 20_000.0
HBM = ((20, 2_250.0), (40, 5_000.0), (80, 10_000.0), (120, 20_000.0))
SECOND = ((256, 2_500.0), (512, 10_000.0), (1024, 20_000.0))


Sizes = tuple[int, int]
"""GiB of HBM and of the second memory; 0 is none."""
COMBINATIONS: tuple[Sizes, ...] = tuple(product(dict(HBM), (0, *dict(SECOND))))


def listed_usd(sizes: Sizes) -> float:
    """One accelerator with memories of listed sizes."""
    hbm, second = sizes
    return ACCELERATOR_USD + dict(HBM)[hbm] + {0: 0.0, **dict(SECOND)}[second]


Curve = Callable[[np.ndarray], np.ndarray]
"""Dollars by bytes; infinite above the largest size, nothing for nothing."""


def slope(curve: Curve, size_bytes: float) -> float:
    """Elasticity of the price: per cent of it for one per cent more bytes."""
    h = 1e-4
    more, less = (float(curve(np.asarray(size_bytes * factor))) for factor in (1 + h, 1 - h))
    return float((np.log(more) - np.log(less)) / (np.log1p(h) - np.log1p(-h))) if less > 0 else 0.0


def convex(points: tuple[tuple[int, float], ...], proportional: bool) -> Curve:
    """The largest convex function in logarithms that is nowhere above the listed points: their lower hull.

    Below the first point: that size or, if `proportional`, in proportion to it. Nothing is sold above the last. (Listed
    prices bend both ways: 40 GB is above it.)
    """
    hull: list[tuple[float, float]] = []
    for gib, usd in points:
        here = (float(np.log(gib)), float(np.log(usd)))
        while len(hull) > 1 and _turns_down(hull[-2], hull[-1], here):
            hull.pop()
        hull.append(here)
    log_gib, log_usd = np.array(hull).T
    least_gib, most_gib, least_usd = np.exp(log_gib[0]), np.exp(log_gib[-1]), np.exp(log_usd[0])

    def price(size_bytes: np.ndarray) -> np.ndarray:
        gib = np.asarray(size_bytes, float) / GIB
        inside = np.exp(np.interp(np.log(np.maximum(gib, 1e-12)), log_gib, log_usd))
        if proportional:
            inside = np.where(gib < least_gib, least_usd * gib / least_gib, inside)
        return np.where(gib > most_gib * (1 + 1e-9), np.inf, inside)

    return price


def _turns_down(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - b[0]) >= (c[1] - b[1]) * (b[0] - a[0])


HBM_CURVE = convex(HBM, proportional=False)
SECOND_CURVE = convex(SECOND, proportional=True)


def unit_usd(hbm_bytes: np.ndarray, second_bytes: np.ndarray) -> np.ndarray:
    """One accelerator with just so much of each."""
    return ACCELERATOR_USD + HBM_CURVE(hbm_bytes) + SECOND_CURVE(second_bytes)
