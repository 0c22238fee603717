"""Returns of more accelerators under fully sharded training (arXiv 2411.13055)."""
