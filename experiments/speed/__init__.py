"""The experiment `speed`: see `experiment.py`."""
