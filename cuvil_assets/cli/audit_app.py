"""The commands of the audit log and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuvil_assets.cli.options import Json, TrustRoot


def add_audit(app: typer.Typer) -> None:
    """Add ``cuvil audit`` to ``app``."""
    audit_app = typer.Typer(help="The audit log of this machine.", no_args_is_help=True, rich_markup_mode=None)
    audit_app.command("show")(show)
    audit_app.command("check")(check)
    audit_app.command("prove")(prove)
    audit_app.command("checkpoint")(checkpoint)
    audit_app.command("erase")(erase)
    app.add_typer(audit_app, name="audit")


def show(
    event: Annotated[str, typer.Option(metavar="KIND", help="Events of this kind only, for example build.")] = "",
    personal: Annotated[bool, typer.Option("--personal", help="Decrypt what is kept about people.")] = False,
    json: Json = False,
) -> None:
    """List the events."""
    from cuvil_assets.cli import audit as command

    command.show(event, personal, json)


def check(
    trust_root: TrustRoot = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A checkpoint kept elsewhere, which the log must continue."),
    ] = None,
    proof: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check this proof of one event instead of the log.")
    ] = None,
    events_only: Annotated[
        bool, typer.Option("--events-only", help="Leave out personal data, for a copy of the log without it.")
    ] = False,
    json: Json = False,
) -> None:
    """Recompute the whole log, or one proof; ends with 1 and names the first bad event."""
    from cuvil_assets.cli import audit as command

    raise typer.Exit(command.check(trust_root, against, proof, events_only, json))


def prove(
    index: Annotated[int, typer.Argument(metavar="INDEX", help="Number of the event, from 0.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the proof goes; standard output if absent.")
    ] = None,
    json: Json = False,
) -> None:
    """Write the inclusion proof of one event under the last checkpoint."""
    from cuvil_assets.cli import audit as command

    command.prove(index, output, json)


def checkpoint(trust_root: TrustRoot = None, json: Json = False) -> None:
    """Sign the head of the log with this machine's keys."""
    from cuvil_assets.cli import audit as command

    command.checkpoint(trust_root, json)


def erase(
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="Name or token of a person in the log.", show_default=False)
    ],
    json: Json = False,
) -> None:
    """Destroy for good what the log keeps about one person; the log stays provable."""
    from cuvil_assets.cli import audit as command

    command.erase(subject, json)
