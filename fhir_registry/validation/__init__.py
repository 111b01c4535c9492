"""Validation against the definitions: structure, types, bindings, references, invariants, profiles."""
