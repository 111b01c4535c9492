"""``cuvil keys``: the commands of the certificate authority and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from cuvil_assets.cli.options import Json

Person = Annotated[str, typer.Option(metavar="NAME", help="The person, or the device's name.", show_default=False)]
Role = Annotated[
    str,
    typer.Option(metavar="ROLE", help="developer, tester, quality, rebuilder, builder or device.", show_default=False),
]
Days = Annotated[int, typer.Option(metavar="N", min=1, max=3650, help="Days the certificates are valid.")]


def add_keys(keys_app: typer.Typer) -> None:
    """Add the commands of this module to ``cuvil keys``."""
    keys_app.command("list")(keys_list)
    keys_app.command("issue")(issue)
    keys_app.command("rotate")(rotate)
    keys_app.command("revoke")(revoke)
    keys_app.command("crl")(crl)
    ca_app = typer.Typer(help="The certificate authority of this machine.", no_args_is_help=True, rich_markup_mode=None)
    # A callback keeps `init` a word of its own although it is the only command.
    ca_app.callback()(_group)
    ca_app.command("init")(ca_init)
    keys_app.add_typer(ca_app, name="ca")
    keyring_app = typer.Typer(help="The signed keyring.", no_args_is_help=True, rich_markup_mode=None)
    keyring_app.callback()(_group)
    keyring_app.command("show")(keyring_show)
    keys_app.add_typer(keyring_app, name="keyring")


def _group() -> None:
    return None


def keys_list(json: Json = False) -> None:
    """List every issued set of keys with its owner and state."""
    from cuvil_assets.cli import keys as command

    command.list_keys(json)


def ca_init(
    organisation: Annotated[
        str, typer.Option(metavar="NAME", help="Name in the authorities' certificates.")
    ] = "Cuvil development",
    json: Json = False,
) -> None:
    """Make root and issuing authorities for SM2 and P-384, unless they are there."""
    from cuvil_assets.cli import keys as command

    command.ca_init(organisation, json)


def issue(
    person: Person,
    role: Role,
    purpose: Annotated[
        str, typer.Option(metavar="NAME", help="code, document or deployment; that of the role if absent.")
    ] = "",
    p384_only: Annotated[
        bool, typer.Option("--ecdsa-only", help="No SM2 key, for a device that must not sign with SM2.")
    ] = False,
    days: Days = 1095,
    json: Json = False,
) -> None:
    """Make keys and certificates for a person in one role, and enter them in the keyring."""
    from cuvil_assets.cli import keys as command

    command.issue(person, role, purpose, p384_only, days, json)


def rotate(person: Person, role: Role, days: Days = 1095, json: Json = False) -> None:
    """Replace a person's keys; the old keys sign the entry of the new ones."""
    from cuvil_assets.cli import keys as command

    command.rotate(person, role, days, json)


def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The set, as `cuvil keys list` names it.")],
    reason: Annotated[
        str,
        typer.Option(
            metavar="REASON",
            help="key-compromise, affiliation-changed, superseded, cessation-of-operation or privilege-withdrawn.",
            show_default=False,
        ),
    ],
    invalid_since: Annotated[
        str,
        typer.Option(metavar="TIME", help="Since when a compromised key may have been misused (2026-01-31T00:00:00Z)."),
    ] = "",
    json: Json = False,
) -> None:
    """Revoke a set of keys: new revocation lists, keyring and trust root."""
    from cuvil_assets.cli import keys as command

    command.revoke(name, reason, invalid_since, json)


def crl(
    days: Annotated[int, typer.Option(metavar="N", min=1, max=366, help="Days the lists are valid.")] = 30,
    json: Json = False,
) -> None:
    """Write new revocation lists."""
    from cuvil_assets.cli import keys as command

    command.crl(days, json)


def keyring_show(json: Json = False) -> None:
    """Verify and print the keyring."""
    from cuvil_assets.cli import keys as command

    command.keyring_show(json)
