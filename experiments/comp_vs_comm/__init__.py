"""Compute against communication as models and hardware evolve (arXiv 2302.02825)."""
