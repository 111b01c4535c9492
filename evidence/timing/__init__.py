"""Timing of engines and of the peers they are compared with (docs/benchmarks.md); behind ``cuvil bench``."""
