"""Statements about artefacts: stage records and their chain, keys, signed proofs, verification."""
