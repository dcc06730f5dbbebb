"""Batch question answering over knowledge graphs: the library behind `python -m pipelines.*`."""

__version__ = "0.1.0"
