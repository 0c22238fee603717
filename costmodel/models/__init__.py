"""Builders of workloads: one file for each family of models."""
