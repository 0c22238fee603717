"""The experiment `accuracy`: see `experiment.py`."""
