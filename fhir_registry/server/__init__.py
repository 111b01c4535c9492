"""The registry as a server: FHIR R5 over HTTP, and pages for people."""
