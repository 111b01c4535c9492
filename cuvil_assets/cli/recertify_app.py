"""Options of ``cuvil recertify`` and ``cuvil nonconformity``."""

from __future__ import annotations

from typing import Annotated

import typer

from cuvil_assets.cli.options import Json, KeyFolder


def add_recertify(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command()(recertify)
    records = typer.Typer(help="Nonconformity records of this home.", no_args_is_help=True, rich_markup_mode=None)
    records.command("list")(nonconformity_list)
    records.command("close")(nonconformity_close)
    app.add_typer(records, name="nonconformity")


def recertify(
    partition: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PARTITION]...", help="MODEL-VERSION|TARGET, as `cuvil status` lists them; all if absent."
        ),
    ] = None,
    kept_cache: Annotated[
        bool, typer.Option("--kept-cache", help="Use this machine's compiled C library instead of compiling it again.")
    ] = False,
    json: Json = False,
) -> None:
    """Rebuild and test again everything this home built, whatever its caches say."""
    from cuvil_assets.cli import recertify as command

    raise typer.Exit(command.run(partition or [], kept_cache, json))


def nonconformity_list(json: Json = False) -> None:
    """List the records, open and closed."""
    from cuvil_assets.cli import recertify as command

    command.list_records(json)


def nonconformity_close(
    identifier: Annotated[str, typer.Argument(metavar="ID", help="The record's id.", show_default=False)],
    person: Annotated[str, typer.Option(metavar="NAME", help="Who closes it.", show_default=False)],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="What was found and done.", show_default=False)],
    key: KeyFolder = None,
    json: Json = False,
) -> None:
    """Close a record with a signed reason; the engine is no longer withdrawn by it."""
    from cuvil_assets.cli import recertify as command

    command.close(identifier, person, reason, key, json)
