"""FHIR R5 as data: what the registry knows of types, bindings, invariants and search parameters."""
