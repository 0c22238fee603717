"""The parts of the `search_quality` experiment."""
