"""The experiment `budget_125m`: see `experiment.py`."""
