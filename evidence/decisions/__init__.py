"""``cuvil decisions``: two engines on every item of a frozen test set, decision by decision (docs/test-set.md)."""
