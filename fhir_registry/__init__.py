"""Hospital-facing services: the FHIR registry of models (docs/registry.md)."""
