"""``cuvil keygen``: a cache key over sources that comments and formatting do not change (docs/keygen.md)."""
