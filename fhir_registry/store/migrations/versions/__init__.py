"""One module for each revision, ``rNNNN_SUBJECT``; NNNN is its id, and it follows the one before."""
