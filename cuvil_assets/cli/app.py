"""The commands and their options; each command's work is in a module of its own, loaded when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuvil_assets.cli.audit_app import add_audit
from cuvil_assets.cli.change_app import add_change
from cuvil_assets.cli.compare_app import add_compare
from cuvil_assets.cli.dataset_app import add_dataset
from cuvil_assets.cli.decisions_app import add_decisions
from cuvil_assets.cli.keys_app import add_keys
from cuvil_assets.cli.options import EngineFile, Json
from cuvil_assets.cli.recertify_app import add_recertify
from cuvil_assets.cli.registry_app import add_registry
from cuvil_assets.cli.release_app import add_commands
from cuvil_assets.cli.reproduce_app import add_reproduce
from cuvil_assets.cli.session_app import add_session
from cuvil_assets.cli.trace_app import add_trace
from cuvil_assets.cli.watch_app import add_watch

app = typer.Typer(
    name="cuvil",
    help="Compiles a medical-imaging model and a clinical policy into a deterministic engine with its evidence.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
keys_app = typer.Typer(help="Signing keys of this machine.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(keys_app, name="keys")
add_keys(keys_app)
add_commands(app)
add_reproduce(app)
add_recertify(app)
add_audit(app)
add_registry(app)
add_session(app)
add_trace(app)
add_change(app)
add_dataset(app)
add_decisions(app)
add_watch(app)
add_compare(app)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"cuvil {version('cuvil')}")
        except PackageNotFoundError:
            print("cuvil (not installed)")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Compiles a medical-imaging model and a clinical policy into a deterministic engine with its evidence."""


@app.command()
def build(
    model: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The model: ONNX, or net.py:Net, net.pt2, pre.py:function (docs/doors.md).",
            show_default=False,
        ),
    ],
    policy: Annotated[Path, typer.Option(metavar="FILE", help="The clinical policy (YAML).", show_default=False)],
    target: Annotated[
        str, typer.Option(metavar="TRIPLE", help="The target; `cuvil doctor` lists them.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="The engine to write; its evidence goes beside it.", show_default=False)
    ],
    input_shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=1,1,28,28", help="Shape of an input whose model leaves it open; may be repeated."),
    ] = None,
    emit: Annotated[
        str, typer.Option(metavar="LIST", help="Further outputs, separated by commas: src, so, lib, memory.")
    ] = "",
    equivalence_inputs: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Inputs on which engine and reference are compared; chosen by the model's size if absent."
        ),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Run every stage, whatever was computed before.")
    ] = False,
    json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show Dagster's own messages.")] = False,
) -> None:
    """Compile a model into a signed engine."""
    from cuvil_assets.cli import build as command
    from cuvil_assets.inputs import BuildOptions, parse_emit, parse_input_shapes

    command.run(
        BuildOptions(
            model,
            policy,
            target,
            output,
            parse_input_shapes(input_shape or []),
            parse_emit(emit),
            equivalence_inputs,
            use_cache=not no_cache,
        ),
        as_json=json,
        verbose=verbose,
    )


@app.command()
def run(
    engine: EngineFile,
    output_dir: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the outputs go, one .npy file each.", show_default=False)
    ],
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE.npy", help="An input; NAME is needed when the engine has several."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Threads, 1 if absent; the result has the same bits for every N.")
    ] = None,
    session: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Record the inference in this archive.", show_default=False),
    ] = None,
    subject: Annotated[
        str,
        typer.Option(metavar="ID", help="Whose input it is; the record holds a random token.", show_default=False),
    ] = "",
    coverage: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Record the probes of the clinical logic in this ring.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Run an engine, under an emulator where this machine needs one; ends with the engine's own exit code."""
    from cuvil_assets.cli import run as command

    if session is None:
        command.run(engine, input or [], output_dir, json, threads, subject, coverage)
    from cuvil_assets.cli import run_session

    raise typer.Exit(run_session.run(engine, input or [], output_dir, json, threads, session, subject, coverage))


@app.command()
def verify(
    engine: Annotated[
        Path,
        typer.Argument(metavar="ENGINE", help="An engine, a release folder or a bundle (zip).", show_default=False),
    ],
    proof: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The proof; beside the engine if absent.", show_default=False)
    ] = None,
    trust_root: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Whom to trust; this machine's development keys if absent.", show_default=False
        ),
    ] = None,
    this_device: Annotated[
        bool, typer.Option("--this-device", help="Require that the release was deployed on this very machine.")
    ] = False,
    json: Json = False,
) -> None:
    """Check an engine against its proof, or a whole release, offline."""
    from cuvil_assets.cli import verify as command

    raise typer.Exit(command.run(engine, proof, trust_root, this_device, json))


@app.command()
def explain(
    engine: EngineFile,
    ir: Annotated[
        str,
        typer.Option(metavar="LEVEL", help="Print the whole IR of a level: l0, frozen, l1, l2, or as mlir."),
    ] = "",
    node: Annotated[
        str,
        typer.Option(metavar="NAME", help="Follow one node of the model down to its C function, or a kernel back up."),
    ] = "",
    decision: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Follow a decision, safety guard, fallback or requirement from the policy to C and back.",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Show what became of the model: nodes, IR levels, C functions, what was tested."""
    from cuvil_assets.cli import explain as command

    command.run(engine, ir, node, decision, json)


@app.command()
def certificate(
    engine: EngineFile,
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE.npy", help="An input; NAME is needed when the engine has several."),
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(metavar="OUTPUT[0,1]>=0.5", help="A decision to certify; without index, for every element."),
    ] = None,
    argmax: Annotated[
        list[str] | None, typer.Option(metavar="OUTPUT", help="Certify the largest class (last axis) of every row.")
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Bounds of every layer too; runs the reference, which is slow.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the certificate as JSON.", show_default=False)
    ] = None,
    bounds: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the bound of every element, NAME.bound.npy.", show_default=False),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the layers as PNG (needs matplotlib).", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Bound what rounding did to one inference, and certify decisions; ends with 1 when one is not certified."""
    from cuvil_assets.cli import certificate as command

    raise typer.Exit(
        command.run(engine, input or [], threshold or [], argmax or [], layers, output, bounds, picture, json)
    )


@app.command()
def sbom(
    engine: EngineFile,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the bill goes; beside the engine if absent.", show_default=False),
    ] = None,
    soup: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the SOUP list too: .csv, .xlsx or .md.", show_default=False),
    ] = None,
    syft: Annotated[bool, typer.Option("--syft", help="Compare with what syft finds in the engine file.")] = False,
    json: Json = False,
) -> None:
    """Write the bill of materials (CycloneDX 1.6) of an engine built on this machine."""
    from cuvil_assets.cli import sbom as command

    command.run(engine, output, soup, syft, json)


@app.command()
def coverage(
    engine: EngineFile,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir", metavar="DIR", help="Where the files go; beside the engine if absent.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Generate test vectors for an engine's clinical logic, run them, and report what they cover."""
    from cuvil_assets.cli import coverage as command

    raise typer.Exit(command.run(engine, output_dir, json))


@app.command()
def gap(
    place: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PLACE]", help="An engine or its folder; only the table if absent.", show_default=False
        ),
    ] = None,
    lang: Annotated[str, typer.Option(metavar="LANGUAGE", help="en or zh.")] = "en",
    json: Json = False,
) -> None:
    """Show which clauses of laws, guidance and standards an engine's evidence answers."""
    from cuvil_assets.cli import gap as command

    command.run(place, lang, json)


@app.command()
def demo(
    output_dir: Annotated[Path, typer.Option(metavar="FOLDER", help="Where everything is written.")] = Path(
        "demo-output"
    ),
    target: Annotated[str, typer.Option(metavar="TRIPLE", help="The target; the one of this machine if absent.")] = "",
    json: Json = False,
) -> None:
    """Build and run the shipped model of vessels in a fundus photograph; a demonstration, not a clinical model."""
    from cuvil_assets.cli import demo as command

    command.run(output_dir, target, json)


@app.command()
def doctor(json: Json = False) -> None:
    """Say what this machine offers: compiler, targets, emulators."""
    from cuvil_assets.cli import machine as command

    command.doctor(json)


@app.command()
def setup(json: Json = False) -> None:
    """Prepare the compiler for every target, so that a build takes seconds."""
    from cuvil_assets.cli import machine as command

    command.setup(json)


@app.command()
def ui(
    port: Annotated[int, typer.Option(metavar="N", min=1, max=65535, help="Port on 127.0.0.1.")] = 3000,
    no_daemon: Annotated[
        bool, typer.Option("--no-daemon", help="Leave out the process that runs queued runs.")
    ] = False,
) -> None:
    """Show all builds in Dagster's web interface, offline, on this machine only."""
    from cuvil_assets.cli import ui as command

    command.run(port, daemon=not no_daemon)


@keys_app.command("init")
def keys_init(json: Json = False) -> None:
    """Make a development key set and its trust root, unless one is there."""
    from cuvil_assets.cli import machine as command

    command.keys_init(json)
