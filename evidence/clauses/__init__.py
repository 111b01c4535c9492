"""Clauses of laws, guidance and standards as data: which file and field of a release answers which."""
