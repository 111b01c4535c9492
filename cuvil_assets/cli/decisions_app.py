"""Options of the commands about decisions on a test set, and of waivers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuvil_assets.cli.options import Json, KeyFolder


def add_decisions(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command()(decisions)
    app.command()(waive)


def decisions(
    a: Annotated[Path, typer.Argument(metavar="A", help="Before: an engine, or a model (.onnx) for onnxruntime.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="After: the engine that is judged.")],
    data: Annotated[
        str, typer.Option(metavar="ARRAY", help="The test set: FILE.npz:ARRAY or FILE.npy.", show_default=False)
    ],
    labels: Annotated[str, typer.Option(metavar="ARRAY", help="Its labels, whole numbers.", show_default=False)],
    score: Annotated[
        str | None, typer.Option(metavar="NAME", help="The output that holds the score.", show_default=False)
    ] = None,
    positive: Annotated[
        int | None, typer.Option(metavar="LABEL", help="Label of a positive item, and its element of the output (1).")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Smallest score that counts as positive.", show_default=False)
    ] = None,
    decision: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The policy's decision that counts as positive.", show_default=False),
    ] = None,
    divide_by: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Every stored number is divided by it (1).")
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(metavar="LAYOUT", help="as_stored, or channels_last to move the last axis to the front."),
    ] = None,
    max_flips: Annotated[
        int | None, typer.Option(metavar="N", help="Most items whose decisions may differ (0).")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The policy of B, where this machine's store lacks it.", show_default=False),
    ] = None,
    waiver: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A signed waiver of exactly what is found.", show_default=False)
    ] = None,
    trust_root: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Whom to trust; this machine's development keys if absent."),
    ] = None,
    key: KeyFolder = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the report goes, if not beside B.", show_default=False),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw both ROC curves (.png).", show_default=False)
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=64, help="Items at a time.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Run two engines on a frozen test set; ends with 1 when decisions flip or a limit is missed, unless waived."""
    from cuvil_assets.cli import decisions as command

    stated = {
        "score": score, "positive": positive, "threshold": threshold, "decision": decision, "divide_by": divide_by,
        "layout": layout, "max_flips": max_flips,
    }  # fmt: skip
    options = command.Options(a, b, data, labels, stated, policy, waiver, trust_root, key, output, picture, jobs)
    raise typer.Exit(command.run(options, json))


def waive(
    report: Annotated[
        Path,
        typer.Argument(metavar="REPORT", help="A report of `dataset check` or `decisions` that failed."),
    ],
    person: Annotated[
        str, typer.Option(metavar="NAME", help="Who waives, as the keyring writes it.", show_default=False)
    ],
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why what the report lists does no harm.", show_default=False)
    ],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The waiver to write.", show_default=False)],
    key: KeyFolder = None,
    json: Json = False,
) -> None:
    """Sign, as one person, why exactly what a failed report lists shall not block."""
    from cuvil_assets.cli import decisions as command

    command.waive(report, person, reason, output, key, json)
