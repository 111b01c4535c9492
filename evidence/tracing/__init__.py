"""Trace propagation put into pipelines written in Python: what is found, edited and refused (docs/tracing.md)."""
