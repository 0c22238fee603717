"""Equipoise's cost model: what a training step costs, as a differentiable function of plan and hardware."""
