"""The commands of session archives and their options: session, replay, erase."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuvil_assets.cli.options import Json, TrustRoot

ArchiveFolder = Annotated[
    Path, typer.Argument(metavar="SESSION", help="The folder that --session named.", show_default=False)
]


def add_session(app: typer.Typer) -> None:
    """Add ``cuvil session``, ``cuvil replay`` and ``cuvil erase`` to ``app``."""
    session_app = typer.Typer(help="Archives of inferences.", no_args_is_help=True, rich_markup_mode=None)
    session_app.command("list")(list_records)
    session_app.command("show")(show)
    session_app.command("verify")(verify)
    session_app.command("seal")(seal)
    session_app.command("export")(export)
    app.add_typer(session_app, name="session")
    app.command("replay")(replay)
    app.command("erase")(erase)


def list_records(
    session: ArchiveFolder,
    subject: Annotated[
        str, typer.Option(metavar="ID", help="Records of this subject only, by name or token.", show_default=False)
    ] = "",
    json: Json = False,
) -> None:
    """List the records of an archive, one line each; nothing is checked."""
    from cuvil_assets.cli import session as command

    command.list_records(session, subject, json)


def show(
    record: Annotated[
        str, typer.Argument(metavar="RECORD", help="An archive and a number, as in sessions:3.", show_default=False)
    ],
    json: Json = False,
) -> None:
    """Show one record."""
    from cuvil_assets.cli import session as command

    command.show(record, json)


def verify(
    session: ArchiveFolder,
    trust_root: TrustRoot = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A seal kept elsewhere, which the archive must still hold."),
    ] = None,
    without_inputs: Annotated[
        bool, typer.Option("--without-inputs", help="Leave out kept inputs, for a copy without them.")
    ] = False,
    json: Json = False,
) -> None:
    """Recompute the whole archive; ends with 1 and names the first bad record."""
    from cuvil_assets.cli import session as command

    raise typer.Exit(command.verify(session, trust_root, against, without_inputs, json))


def seal(
    session: ArchiveFolder,
    trust_root: TrustRoot = None,
    timestamp_command: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="Reads an RFC 3161 request on standard input, writes the response.",
            show_default=False,
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Check the archive and sign its end with this machine's keys."""
    from cuvil_assets.cli import session as command

    command.seal(session, trust_root, timestamp_command, json)


def export(
    session: ArchiveFolder,
    output: Annotated[Path, typer.Option(metavar="FILE", help="The file to write: .csv or .json.", show_default=False)],
    json: Json = False,
) -> None:
    """Write the records of an archive as a table or as one JSON document."""
    from cuvil_assets.cli import session as command

    command.export(session, output, json)


def replay(
    record: Annotated[
        str,
        typer.Argument(metavar="RECORD", help="A record, as in sessions:3, or a whole archive.", show_default=False),
    ],
    engine: Annotated[
        Path | None,
        typer.Option(metavar="ENGINE", help="The engine; the one `cuvil run` used if absent.", show_default=False),
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE.npy", help="An input that was not kept; may be repeated."),
    ] = None,
    isa: Annotated[
        str, typer.Option(metavar="NAME", help="Kernels of this instruction set; `ENGINE --version` lists them.")
    ] = "",
    threads: Annotated[int | None, typer.Option(metavar="N", help="Threads, 1 if absent.")] = None,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Replays at a time, of an archive.")] = 1,
    json: Json = False,
) -> None:
    """Compute archived inferences again and compare every bit; ends with 1 at a difference."""
    from cuvil_assets.cli import replay as command

    raise typer.Exit(command.run(record, engine, input or [], isa, threads, jobs, json))


def erase(
    session: ArchiveFolder,
    subject: Annotated[str, typer.Option(metavar="ID", help="The subject, by name or token.", show_default=False)],
    json: Json = False,
) -> None:
    """Destroy for good what an archive keeps about one subject; chain and seals still verify."""
    from cuvil_assets.cli import session as command

    command.erase(session, subject, json)
