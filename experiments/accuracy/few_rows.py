"""Errors after three rows of the user's own, beside what one factor for all times does with them.

Each source with nine timed rows or more, six draws of three rows; the others are predicted. Figures of a source are
means over its draws.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.measured import Case, Fitted, Update, posterior

ROWS, DRAWS, LEAST = 3, 6, 9
MOST = 200  # rows of a source that are predicted


def after_rows(cases: Sequence[Case], fits: Mapping[str, Fitted], apart: str) -> dict[str, Any]:
    """Each source: the median error without rows, with one factor, after the update, and what lies inside then.

    `fits` has the fit to start from by source, by default the shipped one. The source that stands `apart` is left out.
    """
    by_source: dict[str, list[Case]] = {}
    for case in cases:
        by_source.setdefault(case.source, []).append(case)
    return {
        source: _of_source(own, fits.get(source) or posterior.shipped())
        for source, own in by_source.items()
        if len(own) >= LEAST and not source.startswith(apart)
    }


def _of_source(cases: Sequence[Case], fitted: Fitted) -> dict[str, float]:
    random = np.random.default_rng(0)
    cases = [cases[i] for i in sorted(random.permutation(len(cases))[:MOST])]
    everyone = Update(cases, fitted)
    errors = everyone.residuals(np.zeros(everyone.size))
    draws = [_draw(cases, errors, everyone, fitted, random.permutation(len(cases))[:ROWS]) for _ in range(DRAWS)]
    return {"rows": len(cases)} | {key: float(np.mean([draw[key] for draw in draws])) for key in draws[0]}


def _draw(
    cases: Sequence[Case], errors: np.ndarray, everyone: Update, fitted: Fitted, given: np.ndarray
) -> dict[str, float]:
    others = np.setdiff1d(np.arange(len(cases)), given)
    update = Update([cases[i] for i in given], fitted)
    moved, open_factor = update.solve(np.ones(len(given)))
    known = update.fitted(moved, open_factor)
    assert known is not None
    after = everyone.residuals(moved)[others]
    spread = posterior.log_sd([cases[i] for i in others], known)
    factor = float(np.median(errors[given]))
    return {
        "without": float(np.median(np.abs(errors[others]))),
        "one_factor": float(np.median(np.abs(errors[others] - factor))),
        "after": float(np.median(np.abs(after))),
        "inside": float(np.mean(np.abs(after) <= posterior.P90 * spread)),
        "log_sd": float(np.median(spread)),
    }
