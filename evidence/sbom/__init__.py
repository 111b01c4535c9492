"""The bill of materials of an engine (CycloneDX 1.6) from what was linked, its gates, and the SOUP list."""
