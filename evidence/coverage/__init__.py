"""Structural coverage of the clinical logic: vectors, MC/DC, proofs of infeasibility, a recount (docs/coverage.md)."""
