"""``cuvil classify``: which field of a version X.Y.Z.B changes between two builds (docs/classification.md)."""
