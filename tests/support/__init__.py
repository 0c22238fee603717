"""What several tests share: builders, strategies, the registry of cost functions, and a record of answers."""
