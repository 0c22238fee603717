"""Plans beyond one schedule for all layers (arXiv 2301.08984, nnScaler, Tessel)."""
