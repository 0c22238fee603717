"""The experiment `search_quality`: see `experiment.py`."""
