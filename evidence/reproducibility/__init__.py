"""Building again: the recorded inputs in a varied world, and whether every byte comes out the same."""
