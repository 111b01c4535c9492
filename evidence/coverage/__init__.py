"""Structural coverage of the clinical logic: vectors, MC/DC, proofs of infeasibility, recount by clang (docs/coverage.md)."""
