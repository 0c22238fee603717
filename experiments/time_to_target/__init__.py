"""The experiment `time_to_target`: see `experiment.py`."""
