"""Options of the commands that compare: ``cuvil bench``, ``cuvil bisect``, ``cuvil conformance``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuvil_assets.cli.options import Json


def add_compare(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command()(bench)
    app.command()(bisect)
    app.command()(conformance)


def bench(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="ONNX models.", show_default=False)],
    peers: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Of onnxruntime, openvino, torch, inductor, separated by commas, or none; the installed ones if "
            "absent.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[int, typer.Option(metavar="N", help="Threads of every system.")] = 1,
    runs: Annotated[int, typer.Option(metavar="N", help="Rounds per model.")] = 15,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=1,1,28,28", help="Shape of an input whose model leaves it open; may be repeated."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a PNG (needs matplotlib).", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Time engines and other runtimes on the same models, in turn."""
    from cuvil_assets.cli import bench as command
    from cuvil_assets.inputs import parse_input_shapes

    shapes = parse_input_shapes(input_shape or [])
    raise typer.Exit(command.run(models, peers, threads, runs, shapes, picture, json))


def bisect(
    a: Annotated[str, typer.Argument(metavar="A", help="A system; docs/cli.md lists them.", show_default=False)],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.", show_default=False)],
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX model.", show_default=False)],
    other_model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What B runs, if not MODEL: another version of it.", show_default=False),
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE.npy", help="An input; a seeded one if absent. NAME for several."),
    ] = None,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=1,1,28,28", help="Shape of an input whose model leaves it open; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Find the first node at which two systems differ, and why; ends with 1 when they do."""
    from cuvil_assets.cli import bisect as command
    from cuvil_assets.inputs import parse_input_shapes

    shapes = parse_input_shapes(input_shape or [])
    raise typer.Exit(command.run(a, b, model, other_model, input or [], shapes, json))


def conformance(
    suite: Annotated[str, typer.Option(metavar="NAME", help="The suite: onnx-node.")] = "onnx-node",
    only: Annotated[
        str, typer.Option(metavar="PATTERN", help="Tests whose name contains this, or matches it with * and ?.")
    ] = "",
    op: Annotated[str, typer.Option(metavar="LIST", help="Tests of these operators, separated by commas.")] = "",
    mode: Annotated[
        str,
        typer.Option(metavar="MODE", help="as-is, frozen (inputs that say shapes become constants), or both."),
    ] = "both",
    target: Annotated[str, typer.Option(metavar="TRIPLE", help="The target; the one of this machine if absent.")] = "",
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="End with 1 when a test that this file names does not pass."),
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the names that pass; for the whole suite only.")
    ] = None,
    json: Json = False,
) -> None:
    """Run ONNX's own node tests through compiled engines; ends with 1 for a wrong result."""
    from cuvil_assets.cli import conformance as command

    raise typer.Exit(command.run(suite, only, op, mode, target, baseline, write_baseline, json))
