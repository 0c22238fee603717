"""Results that show themselves: as HTML at the end of a notebook's cell, as text when printed, and as a figure.

How is said in `optimize.report`, the room for all that people read, which is loaded when it is first asked.
"""

from importlib import import_module
from typing import Any

REPORT = "optimize.report"


class Shown:
    """What a result is that people may want to see. It adds no field, and loads nothing."""

    def _repr_html_(self) -> str:
        return import_module(REPORT).as_html(self)

    def __str__(self) -> str:
        """What the terminal shows; of traced numbers and arrays, which nobody can show, their `repr`."""
        try:
            return import_module(REPORT).as_text(self)
        except (TypeError, ValueError):
            return repr(self)

    def plot(self, name: str | None = None) -> Any:
        """A figure of matplotlib: the first of its figures, or that of a name."""
        return import_module(REPORT).as_figure(self, name)
