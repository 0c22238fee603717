r"""The scatter between software: how far the steps of a class that was never measured lie from the prediction.

Judged by rows left out of the fit, in two ways: each source alone, whose class and formulas know others like it, and
each class of software whole, as software that is new. The first flatters (formulas and readings were made with these
sources in view), the second is harsh, and one does not know which a new source is: a source's scale is the geometric
mean of the two. Judged on both kinds and on dies left out, by the continuous ranked probability score and the interval
score, each source out of its own scale: against the first alone the mean loses 1.3 and 2.8 % on sources, and gains .3
and 1 % where software is new, for which it was chosen.

Scales of sources differ by factors, so a class has their geometric mean, drawn towards that of all; how little a few
sources say of the next one is Student's t. Its 80 % interval is what is kept, as the standard deviation of the normal
distribution that has the same.
"""

from collections.abc import Callable, Sequence

import numpy as np

from costmodel.measured.fit.evaluate import scatter_class
from costmodel.measured.rows import Case

_LARGEST = 0.4  # of a source: beyond it a formula is wrong, which no scatter describes
_LEAST = 0.04  # the same recipe on the same chip at another site (measurements/README.md, section 1)
_PRIOR = 2.0  # sources that the scale of all classes counts for. Both by the share of left-out rows inside
_FREEDOM = 4.0  # degrees of freedom of the scale of all; each source of a class adds one


def scatter(
    cases: Sequence[Case], errors: np.ndarray, member_of: Callable[[Case], str] = scatter_class
) -> dict[str, float]:
    """The scatter of each software class (`member_of` a case), and of all ('').

    `errors` are of the cases, in one row or more: by one way of leaving out each. The scale of a source left out is its
    median absolute error over that of a normal distribution. Models with experts are a class of their own: what their
    kernels and dispatchers do differs more from one release to the next.
    """
    errors = np.atleast_2d(errors)
    sources, classes = np.array([c.source for c in cases]), np.array([member_of(c) for c in cases])
    logs: dict[str, list[float]] = {}
    for source in dict.fromkeys(sources):
        for member in dict.fromkeys(classes[sources == source]):
            own = np.abs(errors[:, (sources == source) & (classes == member)])
            logs.setdefault(str(member), []).append(float(np.mean([_log_scale(sizes) for sizes in own])))
    overall = float(np.mean(np.concatenate(list(logs.values()))))
    drawn = {name: (sum(own) + _PRIOR * overall) / (len(own) + _PRIOR) for name, own in logs.items()}
    return {name: _as_normal(drawn[name], len(logs[name])) for name in drawn} | {"": _as_normal(overall, 0)}


def _log_scale(sizes: np.ndarray) -> float:
    return float(np.log(np.clip(np.median(sizes) / 0.6745, _LEAST, _LARGEST)))


def _as_normal(log_scale: float, sources: int) -> float:
    """The standard deviation of the normal distribution with the same 80 % interval."""
    from scipy.stats import norm, t

    return float(np.exp(log_scale) * t.ppf(0.9, sources + _FREEDOM) / norm.ppf(0.9))


def within_scatter(cases: Sequence[Case], errors: np.ndarray) -> float:
    """The scatter that is left inside one software: the median over sources of a robust scale about each."""
    sources = np.array([case.source for case in cases])
    scales = []
    for source in dict.fromkeys(sources):
        own = errors[sources == source]
        scales.append(float(np.median(np.abs(own - np.median(own)))) / 0.6745)
    return float(np.median(scales))
