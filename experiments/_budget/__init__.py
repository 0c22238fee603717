"""The parts of the `budget_125m` experiment."""
