"""From a verified release to FHIR resources (docs/registry.md has the table)."""
