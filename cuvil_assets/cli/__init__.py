"""The ``cuvil`` command line (docs/cli.md). Importing it loads neither Dagster nor the compiler."""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code documented in docs/cli.md. ``arguments`` default to the process's."""
    from cuvil_assets.cli.app import app
    from cuvil_assets.cli.outcome import run_command

    return run_command(app, sys.argv[1:] if arguments is None else arguments)
