"""Options of ``cuvil reproduce`` and ``cuvil rebuild``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuvil_assets.cli.options import EngineFile, Json, KeyFolder, StoredModel


def add_reproduce(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command()(reproduce)
    app.command()(rebuild)


def reproduce(
    engine: EngineFile,
    rebuilds: Annotated[
        int | None, typer.Option(metavar="N", help="Rebuilds; as the policy says, or 20.", show_default=False)
    ] = None,
    model: StoredModel = None,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The policy, if this machine's store lacks it.", show_default=False),
    ] = None,
    key: KeyFolder = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of what is varied.")] = 20261130,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Rebuilds at a time; up to 4 if absent.", show_default=False)
    ] = None,
    fresh_caches: Annotated[
        int, typer.Option(metavar="N", help="Rebuilds that compile the C library again, a minute each.")
    ] = 1,
    json: Json = False,
) -> None:
    """Build an engine again from its recorded inputs in varied worlds, and compare every byte."""
    from cuvil_assets.cli import reproduce as command

    command.run(command.Options(engine, rebuilds, model, policy, key, seed, jobs, fresh_caches), json)


def rebuild(
    proof: Annotated[
        Path,
        typer.Argument(metavar="PROOF", help="A build proof, a release folder or a bundle (zip).", show_default=False),
    ],
    person: Annotated[
        str, typer.Option(metavar="NAME", help="Who rebuilds, as the keyring writes it.", show_default=False)
    ],
    model: StoredModel = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The policy, if neither PROOF nor this machine's store has it.", show_default=False
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="That person's key folder; this machine's if absent.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Where the attestation goes; beside a proof, else here.", show_default=False
        ),
    ] = None,
    kept_cache: Annotated[
        bool, typer.Option("--kept-cache", help="Use this machine's compiled C library instead of compiling it again.")
    ] = False,
    json: Json = False,
) -> None:
    """Rebuild somebody else's engine on this machine and sign what came out."""
    from cuvil_assets.cli import rebuild as command

    command.run(command.Options(proof, model, policy, person, key, output, not kept_cache), json)
