"""Search parameters: from resources to index rows, and from a request to SQL."""
