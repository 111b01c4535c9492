"""Dagster definitions of the lifecycle, the action cache, and the ``cuvil`` command line. Importing it is cheap."""
