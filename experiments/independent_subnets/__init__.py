"""The experiment `independent_subnets`: see `experiment.py`."""
