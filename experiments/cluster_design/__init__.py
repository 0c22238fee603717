"""Design of the cluster for a model of a trillion parameters (arXiv 2211.16648, COMET)."""
