"""The experiment `codesign`: see `experiment.py`."""
