"""The fit without each calibration source in turn: what software gets that nobody has measured.

Constants, their covariance and the scatter between software are those of the other sources alone.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from costmodel.measured import (
    Case,
    Fitted,
    Problem,
    as_fitted,
    kernels,
    left_out_errors,
    of_software,
    scatter,
    settle,
    train,
    within_scatter,
    without_each,
)


def fits_without(timed: Sequence[Case], folder: Path) -> dict[str, Fitted]:
    """The fits that saw no row of a source, by source."""
    with open(folder / "microbenchmarks.csv", newline="", encoding="utf-8") as file:
        measured_kernels = kernels(list(csv.DictReader(file)))
    trained = train(Problem(settle(timed), measured_kernels))
    without, classes = without_each(trained), without_each(trained, of_software)
    errors = np.array([left_out_errors(without), left_out_errors(classes, of_software)])
    cases, inside = trained.problem.cases, trained.errors()
    sources = np.array([case.source for case in cases])
    found = {}
    for source, one in without.items():
        others = [case for case in cases if case.source != source]
        kept = sources != source
        own = scatter(others, errors[:, kept]) | {"within": within_scatter(others, inside[kept])}
        found[source] = as_fitted(one, own, memory={})  # whose errors are those of formulas, which nothing is fitted to
    return found
