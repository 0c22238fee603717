"""Flexible plans as graphs: an explicit order of operations on each device, and its longest path."""
