"""The commands of data sets and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuvil_assets.cli.options import Json

Only = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Only files of a folder whose name matches, such as *.png; may be repeated."),
]
Numbers = Annotated[bool, typer.Option("--numbers", help="Name items by number: names of files may tell who it is.")]


def add_dataset(app: typer.Typer) -> None:
    """Add ``cuvil dataset`` to ``app``."""
    dataset_app = typer.Typer(
        help="Whether train, tune and test set are disjoint.", no_args_is_help=True, rich_markup_mode=None
    )
    dataset_app.command("manifest")(manifest)
    dataset_app.command("check")(check)
    app.add_typer(dataset_app, name="dataset")


def manifest(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A folder, FILE.npy or FILE.npz:ARRAY.", show_default=False)
    ],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The manifest to write (.json).", show_default=False)],
    only: Only = None,
    numbers: Numbers = False,
    json: Json = False,
) -> None:
    """Write what one split consists of, by digests, so that it can be compared without the data."""
    from cuvil_assets.cli import dataset as command

    command.manifest(source, output, only or [], numbers, json)


def check(
    splits: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SPLIT]...",
            help="The splits as NAME=SOURCE: train=..., tune=..., test=..., each a folder, an array or a manifest; if "
            "absent, the manifests this home keeps of the policy's splits.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A policy whose section dataset names the splits by digest."),
    ] = None,
    engine: Annotated[
        Path | None,
        typer.Option(metavar="ENGINE", help="An engine: its policy counts, and the report goes beside it."),
    ] = None,
    only: Only = None,
    numbers: Numbers = False,
    near: Annotated[
        int, typer.Option(metavar="BITS", min=0, max=16, help="Pairs that look alike: bits that may differ.")
    ] = 0,
    waiver: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A signed waiver of what the splits share.", show_default=False)
    ] = None,
    trust_root: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Whom to trust about the waiver; this machine's development keys if absent."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the report goes.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Compare the splits pairwise; ends with 1 when two share an item and nobody waived that."""
    from cuvil_assets.cli import dataset as command

    raise typer.Exit(
        command.check(splits or [], policy, engine, only or [], numbers, near, waiver, trust_root, output, json)
    )
