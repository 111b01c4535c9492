"""Proofs about symbolic shapes: comparisons for all sizes, and accesses inside their buffers (docs/shapes.md)."""
