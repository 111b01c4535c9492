"""The commands of the registry and their options."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from compiler_kernels.errors import UsageError
from cuvil_assets.cli.options import Json, KeyFolder, TrustRoot
from cuvil_assets.cli.registry_place import Place

# Of the extra `registry`; what only makes it faster is not needed.
_PACKAGES: Final = ("alembic", "fhirpathpy", "httptools", "jinja2", "sqlalchemy", "uvicorn")

Data = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Where the registry lies; $CUVIL_HOME/registry if absent.", show_default=False),
]

Database = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="CUVIL_REGISTRY_DATABASE",
        help="PostgreSQL, postgresql://USER@HOST/DATABASE; a SQLite file in --data if absent.",
        show_default=False,
    ),
]


def add_registry(app: typer.Typer) -> None:
    """Add ``cuvil registry`` to ``app``."""
    registry_app = typer.Typer(help="The FHIR registry of models.", no_args_is_help=True, rich_markup_mode=None)
    registry_app.callback()(_installed)
    registry_app.command("serve")(serve)
    registry_app.command("register")(register)
    registry_app.command("withdraw")(withdraw)
    registry_app.command("list")(listed)
    registry_app.command("audit")(check_audit)
    registry_app.command("migrate")(migrate)
    registry_app.command("token")(token)
    app.add_typer(registry_app, name="registry")


def _installed() -> None:
    """The FHIR registry of models."""
    missing = [package for package in _PACKAGES if find_spec(package) is None]
    if missing:
        raise UsageError(f"the registry needs {', '.join(missing)}: run pip install 'cuvil[registry]'")


def serve(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port; 0 takes a free one.")] = 8080,
    data: Data = None,
    database: Database = "",
    base: Annotated[
        str, typer.Option(metavar="URL", help="The address of /fhir as clients see it, behind a proxy.")
    ] = "",
    trust_root: TrustRoot = None,
    private: Annotated[bool, typer.Option("--private", help="Reads too need a token or a client certificate.")] = False,
    tls_cert: Annotated[
        Path | None,
        typer.Option(metavar="PEM", help="Serve HTTPS with this certificate and its chain.", show_default=False),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="PEM", help="Its private key.", show_default=False)] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(metavar="PEM", help="Authorities of clients that may show a certificate.", show_default=False),
    ] = None,
    read_rate: Annotated[
        float, typer.Option(metavar="N", min=0, help="Reads a second of one client; 0 is no limit.")
    ] = 1000.0,
    write_rate: Annotated[
        float, typer.Option(metavar="N", min=0, help="Writes a second of one client; 0 is no limit.")
    ] = 100.0,
    at_once: Annotated[int, typer.Option(metavar="N", min=1, help="Requests being answered at once.")] = 256,
    allow_endpoint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST[:PORT]", help="A host that may be notified though it is private.", show_default=False
        ),
    ] = None,
) -> None:
    """Serve the registry, as FHIR R5 and as pages for people, until interrupted."""
    from cuvil_assets.cli import registry as command
    from fhir_registry.server.serve import Serving
    from fhir_registry.server.tls import TlsFiles
    from fhir_registry.subscriptions.endpoint import read_allowed

    if (tls_cert is None) != (tls_key is None) or (client_ca is not None and tls_cert is None):
        raise UsageError("--tls-cert and --tls-key belong together, and --client-ca needs them; give all of them")
    if base and not (base.startswith(("http://", "https://")) and base.partition("://")[2].strip("/")):
        raise UsageError(
            f"--base {base!r} is no address; give the one clients use, such as https://registry.example/fhir"
        )
    tls = TlsFiles(tls_cert, tls_key, client_ca) if tls_cert is not None and tls_key is not None else None
    serving = Serving(
        base.rstrip("/"),
        trust_root,
        private,
        read_rate,
        write_rate,
        at_once,
        tls,
        endpoints=read_allowed(allow_endpoint or ()),
    )
    command.serve(host, port, Place(data, database), serving)


def register(
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="A release folder, its engine, or a bundle (zip).")
    ],
    data: Data = None,
    database: Database = "",
    trust_root: TrustRoot = None,
    json: Json = False,
) -> None:
    """Verify a release and register it; the same release again changes nothing."""
    from cuvil_assets.cli import registry as command

    command.register(release, Place(data, database), trust_root, json)


def withdraw(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="NAME|VERSION, or the id of its DeviceDefinition.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for those who use it.")],
    data: Data = None,
    database: Database = "",
    json: Json = False,
) -> None:
    """Mark a model version as retired; it stays readable."""
    from cuvil_assets.cli import registry as command

    command.withdraw(model, reason, Place(data, database), json)


def listed(data: Data = None, database: Database = "", json: Json = False) -> None:
    """List every model version with its status."""
    from cuvil_assets.cli import registry as command

    command.listed(Place(data, database), json)


def check_audit(data: Data = None, database: Database = "", json: Json = False) -> None:
    """Check that the trail of accesses is one unbroken chain."""
    from cuvil_assets.cli import registry as command

    command.check_audit(Place(data, database), json)


def migrate(data: Data = None, database: Database = "", json: Json = False) -> None:
    """Make the database's schema, or bring it to the newest revision."""
    from cuvil_assets.cli import registry as command

    command.migrate(Place(data, database), json)


def token(
    address: Annotated[str, typer.Argument(metavar="URL", help="The address of /fhir, as the registry is served at.")],
    key: KeyFolder = None,
    seconds: Annotated[int, typer.Option(metavar="N", min=1, max=300, help="How long it holds.")] = 120,
    json: Json = False,
) -> None:
    """Make a token of this builder's key: for one write, or for the reads of a registry that is private."""
    from cuvil_assets.cli import registry as command

    command.token(address, key, seconds, json)
