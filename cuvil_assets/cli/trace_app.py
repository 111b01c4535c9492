"""The commands of tracing and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuvil_assets.cli.options import Json


def add_trace(app: typer.Typer) -> None:
    """Add ``cuvil trace`` to ``app``."""
    trace_app = typer.Typer(
        help="From images to records of inference and back.", no_args_is_help=True, rich_markup_mode=None
    )
    keys_app = typer.Typer(help="The keys of pseudonyms.", no_args_is_help=True, rich_markup_mode=None)
    keys_app.command("init")(keys_init)
    keys_app.command("list")(keys_list)
    keys_app.command("rotate")(keys_rotate)
    keys_app.command("destroy")(keys_destroy)
    trace_app.add_typer(keys_app, name="keys")
    # One in 64 pseudonyms begins with a hyphen, and is no option.
    trace_app.command("lookup", context_settings={"ignore_unknown_options": True})(lookup)
    trace_app.command("forget")(forget)
    trace_app.command("inject")(inject)
    trace_app.command("export")(export)
    app.add_typer(trace_app, name="trace")


def keys_init(json: Json = False) -> None:
    """Make the key of this machine's pseudonyms, unless one is there."""
    from cuvil_assets.cli import trace_keys as command

    command.init(json)


def keys_list(json: Json = False) -> None:
    """List the epochs of keys; the last makes new pseudonyms."""
    from cuvil_assets.cli import trace_keys as command

    command.list_epochs(json)


def keys_rotate(json: Json = False) -> None:
    """Begin a new epoch; earlier keys are kept, to recompute earlier pseudonyms."""
    from cuvil_assets.cli import trace_keys as command

    command.rotate(json)


def keys_destroy(
    epoch: Annotated[int, typer.Argument(metavar="EPOCH", help="Number of the epoch.", show_default=False)],
    json: Json = False,
) -> None:
    """Destroy the key of an epoch for good: its pseudonyms can no longer be recomputed."""
    from cuvil_assets.cli import trace_keys as command

    command.destroy(epoch, json)


def lookup(
    pseudonym: Annotated[
        str, typer.Argument(metavar="[PSEUDONYM]", help="Whose identifiers to show.", show_default=False)
    ] = "",
    patient: Annotated[str, typer.Option(metavar="ID", help="PatientID whose pseudonyms to list.")] = "",
    study: Annotated[str, typer.Option(metavar="UID", help="StudyInstanceUID.")] = "",
    series: Annotated[str, typer.Option(metavar="UID", help="SeriesInstanceUID.")] = "",
    instance: Annotated[str, typer.Option(metavar="UID", help="SOPInstanceUID.")] = "",
    recompute: Annotated[
        bool,
        typer.Option("--recompute", help="From the keys instead of the store; needs every identifier of an image."),
    ] = False,
    json: Json = False,
) -> None:
    """Show whose image a pseudonym of this machine is, or which pseudonyms images have; the audit log records it."""
    from cuvil_assets.cli import trace_lookup as command
    from evidence.sessions.pseudonym import identifiers

    command.run(pseudonym, identifiers(study, series, instance, patient), recompute, json)


def forget(
    subject: Annotated[
        str,
        typer.Argument(metavar="SUBJECT", help="A PatientID, or one of the patient's pseudonyms.", show_default=False),
    ],
    json: Json = False,
) -> None:
    """Erase what the store of this machine knows about a patient's images; it cannot be undone."""
    from cuvil_assets.cli import trace_lookup as command

    command.forget_patient(subject, json)


def inject(
    place: Annotated[
        Path, typer.Argument(metavar="PLACE", help="A Python file, or a folder of them.", show_default=False)
    ],
    write: Annotated[bool, typer.Option("--write", help="Change the files instead of showing the diff.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show a unified diff; what happens without --write.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Bind without pseudonyms, whatever the environment.")
    ] = False,
    json: Json = False,
) -> None:
    """Bind the trace of a pipeline to the images it parses: edits around calls of pydicom, as a diff to review."""
    from cuvil_assets.cli import trace_inject as command

    raise typer.Exit(command.run(place, write, diff, strict, json))


def export(
    session: Annotated[
        Path, typer.Argument(metavar="SESSION", help="The folder that --session named.", show_default=False)
    ],
    otlp: Annotated[
        str,
        typer.Option(metavar="PLACE", help="http://HOST:PORT of a collector, or a file to write.", show_default=False),
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Without pseudonyms, digests of tensors and tokens of subjects.")
    ] = False,
    trust_root: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Whom to trust; this machine's development keys if absent.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check an archive of inferences and give it to OpenTelemetry, one span an inference."""
    from cuvil_assets.cli import trace_export as command

    command.run(session, otlp, strict, trust_root, json)
