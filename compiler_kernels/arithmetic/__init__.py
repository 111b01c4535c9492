"""Canonical Arithmetic 1 as the generators need it: summation orders, resize tables (docs/arithmetic.md)."""
