"""The experiment `real_steps`: see `experiment.py`."""
