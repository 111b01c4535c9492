"""Inferences that leave a record: trace context, pseudonyms of the images they saw, the archive of sessions."""
