"""Options of the commands that say whether and how something changed: ``cuvil keygen``, ``cuvil classify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuvil_assets.cli.options import Json


def add_change(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command()(keygen)
    app.command()(classify)


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


def classify(
    a: Annotated[Path, typer.Argument(metavar="A", help="The older build: an engine or its folder.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The newer build.")],
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Sign the proposal, or --field instead, as --person.")
    ] = False,
    person: Annotated[str, typer.Option(metavar="NAME", help="Who confirms, as the keyring writes it.")] = "",
    key: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="That person's key folder; this machine's if absent.", show_default=False),
    ] = None,
    field: Annotated[
        str, typer.Option(metavar="FIELD", help="major, minor, corrective, build or none, if not the proposed one.")
    ] = "",
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why --field is not the proposed one.")] = "",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the signed statement goes; beside B if absent.", show_default=False),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check a signed statement instead.", show_default=False)
    ] = None,
    trust_root: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Whom to trust; this machine's development keys if absent.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Propose which field of a version X.Y.Z.B changes between two builds; a person confirms it."""
    from compiler_kernels.errors import UsageError
    from cuvil_assets.cli import classify as command

    if not confirm and (person or key or field or reason or output):
        raise UsageError("--person, --key, --field, --reason and --output belong to --confirm; add it")
    if confirm and check:
        raise UsageError("--confirm and --check exclude each other; run one after the other")
    if confirm:
        command.run_confirm(a, b, trust_root, person, key, field, reason, output, json)
    elif check:
        command.run_check(a, b, trust_root, check, json)
    else:
        command.run(a, b, trust_root, json)
