"""Options of the commands that say whether and how something changed: ``cuvil keygen``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")]


def add_change(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command()(keygen)


def keygen(
    file: Annotated[
        list[Path],
        typer.Option("--file", "-f", metavar="PATH", help="A file or folder; may be repeated.", show_default=False),
    ],
    raw: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="Take this file or folder by its bytes; may be repeated."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the canonical form of each file, from which the key is made.")
    ] = False,
    json: Json = False,
) -> None:
    """Print a cache key over files that comments and formatting do not change."""
    from cuvil_assets.cli import keygen as command

    command.run(file, raw or [], explain, json)
