"""R5 Subscriptions: hospitals are told of new, changed and withdrawn model versions (rest-hook)."""
