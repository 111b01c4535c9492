"""What is told of releases without rebuilding them: certificates, keys, advisories (docs/surveillance.md)."""
