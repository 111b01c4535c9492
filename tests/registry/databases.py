"""On which databases tests run: promises of the store always on both, the rest on both with `make test-registry`."""

from __future__ import annotations

import os

EVERYWHERE = "CUVIL_TEST_POSTGRESQL" in os.environ
DATABASES = ("sqlite", "postgresql") if EVERYWHERE else ("sqlite",)
