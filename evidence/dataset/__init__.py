"""``cuvil dataset``: whether train, tune and test set are disjoint, told from digests of items (docs/dataset.md)."""
