"""The experiment `calibrate_defaults`: see `experiment.py`."""
