"""Runnable stages: `python -m pipelines.<name>`."""
