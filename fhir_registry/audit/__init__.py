"""Who read and wrote what: FHIR AuditEvents in a durable outbox whose entries are chained by digest."""
