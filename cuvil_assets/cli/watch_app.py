"""Options of the commands that look at what this home built: ``cuvil surveil``, ``cuvil status``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuvil_assets.cli.options import Json


def add_watch(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command()(surveil)
    app.command()(status)


def surveil(
    advisories: Annotated[
        Path | None, typer.Option(metavar="FILE", help="OSV advisories: a JSON file, or a folder of them.")
    ] = None,
    policy: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A policy in force; builds from another one are due.")
    ] = None,
    certificate_days: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=3650, help="Warn N days before a certificate ends; 30 if absent."),
    ] = None,
    json: Json = False,
) -> None:
    """Look at everything this home built, without rebuilding: digests, proofs, keys, certificates, advisories."""
    from cuvil_assets.cli import surveil as command

    raise typer.Exit(command.run(advisories, policy or [], certificate_days, json))


def status(json: Json = False) -> None:
    """List every model version and target, and what the last surveillance said of it."""
    from cuvil_assets.cli import surveil as command

    command.status(json)
