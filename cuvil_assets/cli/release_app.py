"""The commands of a release and their options: approve, release, deploy, bundle, log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuvil_assets.cli.options import EngineFile, Json, KeyFolder, TrustRoot

ReleaseFolder = Annotated[Path, typer.Argument(metavar="RELEASE", help="The release folder.", show_default=False)]


def add_commands(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command()(approve)
    app.command()(release)
    app.command()(deploy)
    app.command()(bundle)
    log_app = typer.Typer(help="The transparency log of this machine.", no_args_is_help=True, rich_markup_mode=None)
    log_app.command("show")(log_show)
    log_app.command("prove")(log_prove)
    log_app.command("check")(log_check)
    app.add_typer(log_app, name="log")


def approve(
    engine: EngineFile,
    role: Annotated[str, typer.Option(metavar="ROLE", help="developer, tester or quality.", show_default=False)],
    person: Annotated[
        str, typer.Option(metavar="NAME", help="Who approves, as the keyring writes it.", show_default=False)
    ],
    key: Annotated[Path, typer.Option(metavar="FOLDER", help="That person's key folder.", show_default=False)],
    statement: Annotated[
        str, typer.Option(metavar="TEXT", help="What the person declares, if not the sentence of the role.")
    ] = "",
    json: Json = False,
) -> None:
    """Sign, as one person in one role, that an engine and its reports may be released."""
    from cuvil_assets.cli import release as command

    command.approve(engine, role, person, key, statement, json)


def release(
    engine: EngineFile,
    output: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The release folder to make; it may not exist.", show_default=False)
    ],
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The policy of the build, if this machine's store lacks it.", show_default=False
        ),
    ] = None,
    key: KeyFolder = None,
    trust_root: TrustRoot = None,
    timestamp_command: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="A program that reads an RFC 3161 request on standard input and writes the response.",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Make the signed release folder of an engine from everything its policy demands."""
    from cuvil_assets.cli import release as command

    command.release(engine, output, policy, key, trust_root, timestamp_command, json)


def deploy(folder: ReleaseFolder, key: KeyFolder = None, trust_root: TrustRoot = None, json: Json = False) -> None:
    """Bind a release to this device: verify it, then sign the device's fingerprint beside it."""
    from cuvil_assets.cli import release as command

    command.deploy(folder, key, trust_root, json)


def bundle(
    folder: ReleaseFolder,
    output: Annotated[Path, typer.Option(metavar="FILE", help="The zip to write.", show_default=False)],
    json: Json = False,
) -> None:
    """Pack a release folder into one zip; equal folders give equal bytes."""
    from cuvil_assets.cli import release as command

    command.bundle(folder, output, json)


def log_show(json: Json = False) -> None:
    """List the entries and the last signed head."""
    from cuvil_assets.cli import log as command

    command.show(json)


def log_prove(
    index: Annotated[int, typer.Argument(metavar="INDEX", help="Number of the entry, from 0.", show_default=False)],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The proof to write.", show_default=False)],
    json: Json = False,
) -> None:
    """Write the inclusion proof of one entry under the last signed head."""
    from cuvil_assets.cli import log as command

    command.prove(index, output, json)


def log_check(trust_root: TrustRoot = None, json: Json = False) -> None:
    """Recompute the whole log against every head that was ever signed."""
    from cuvil_assets.cli import log as command

    command.check(trust_root, json)
