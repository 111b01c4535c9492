"""``cuvil registry``: serve, register, withdraw, list, audit, migrate."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json
from cuvil_assets import audit
from cuvil_assets.cli.outcome import note, print_json
from cuvil_assets.cli.registry_place import Place
from cuvil_assets.home import current_home
from evidence.verifier.errors import VerificationFailed, VerifierError

if TYPE_CHECKING:
    from fhir_registry.mapping.facts import ReleaseFacts
    from fhir_registry.pipeline import Registered
    from fhir_registry.server.serve import Serving


def serve(host: str, port: int, place: Place, serving: Serving) -> None:
    """Serve until interrupted."""
    from evidence.verifier.trust import default_trust_root, load_trust_root
    from fhir_registry.server.serve import listen, open_registry
    from fhir_registry.server.serve import serve as run

    try:
        load_trust_root(serving.trust_root or default_trust_root())
    except VerifierError as error:
        if serving.trust_root is not None:
            raise
        note(f"{error}; until then nobody can write here and nothing can be verified")
    try:
        listener = listen(host, port)
    except OSError as error:
        raise UsageError(
            f"{host}:{port} cannot be served ({error.strerror}); choose another --host or --port"
        ) from None
    with listener:
        scheme = "http" if serving.tls is None else "https"
        if scheme == "http" and not serving.base.startswith("https://") and not _is_own(host):
            note("tokens travel unencrypted here; give --tls-cert and --tls-key, or --base with the https of a proxy")
        named = f"[{host}]" if ":" in host else host
        shown = f"{scheme}://{named}:{listener.getsockname()[1]}/fhir"
        serving = replace(serving, audience=shown)
        registry = open_registry(place.folder, serving, version=version("cuvil"), address=place.address)
        try:
            run(registry, listener, lambda: _ready(serving.base or shown, serving.private))
        finally:
            registry.close()


def _is_own(host: str) -> bool:
    """Whether only this machine reaches what listens at ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _ready(base: str, private: bool) -> None:
    print(f"{base}/metadata", flush=True)
    reads = "reads need a token or certificate" if private else "reads are open"
    print(
        f"serving; pages for people at {base.removesuffix('/fhir')}/; {reads}, "
        "writes need a builder's token or certificate; end with Ctrl-C",
        file=sys.stderr,
        flush=True,
    )


def register(release: Path, place: Place, trust_root: Path | None, as_json: bool) -> None:
    """Verify a release and store what the registry says of it."""
    from fhir_registry import pipeline
    from fhir_registry.mapping.device import device_id
    from fhir_registry.mapping.facts import read_facts

    facts = read_facts(release, trust_root)
    store = place.open()
    try:
        done = pipeline.register(store, facts)
    finally:
        store.close()
    fields: dict[str, Json] = {"model_version": facts.statement.model_version, "release_sha3_512": facts.digest}
    _recorded("registration", fields)
    if done.changed:
        _shown_in_dagster(facts, done)
    device = device_id(facts, facts.deployed) if facts.deployed is not None else None
    said: dict[str, Json] = {
        "id": done.id,
        "version": done.version,
        "changed": done.changed,
        **({"device": device} if device else {}),
        **fields,
    }
    if as_json:
        print_json(said)
        return
    state = f"{done.changed} resources written" if done.changed else "registered before, nothing changed"
    # As `cuvil registry withdraw` takes it.
    named = f"{facts.statement.model}|{facts.policy['model']['version']}"
    print(f"DeviceDefinition/{done.id} version {done.version}: {named}, {state}")
    if device:
        print(f"Device/{device}: deployed on this machine, as its statement says")


def _shown_in_dagster(facts: ReleaseFacts, done: Registered) -> None:
    """The registration as a materialisation in the user interface; without one it is no less a registration."""
    from cuvil_assets.chain import MODEL_RESOURCE
    from cuvil_assets.release_event import report

    metadata: dict[str, str | int] = {"id": done.id, "version": done.version}
    version = facts.statement.model_version
    remark = report(current_home(), MODEL_RESOURCE, version, facts.build.target, facts.digest, metadata)
    if remark:
        note(f"the registration {remark}")


def withdraw(model: str, reason: str, place: Place, as_json: bool) -> None:
    """Mark a model version as retired."""
    from fhir_registry import pipeline

    if not reason.strip():
        raise UsageError("--reason is empty: hospitals read it, say why the version is withdrawn")
    store = place.open()
    try:
        done = pipeline.withdraw(store, model, " ".join(reason.split()))
    finally:
        store.close()
    _recorded("withdrawal", {"id": done.id, "version": done.version})
    if as_json:
        print_json({"id": done.id, "version": done.version, "changed": done.changed})
        return
    print(
        f"DeviceDefinition/{done.id} version {done.version}: withdrawn"
        if done.changed
        else f"{done.id} was withdrawn before"
    )


def listed(place: Place, as_json: bool) -> None:
    """Every model version with its status."""
    from fhir_registry.pipeline import models

    store = place.open()
    try:
        rows = models(store)
    finally:
        store.close()
    if as_json:
        print_json({"models": [dict(row) for row in rows]})
        return
    for row in rows:
        print(f"{row['status']:8} {row['model']:40} DeviceDefinition/{row['id']}")
    print("1 model version" if len(rows) == 1 else f"{len(rows)} model versions")


def check_audit(place: Place, as_json: bool) -> None:
    """The outbox of AuditEvents holds together."""
    from fhir_registry.audit.outbox import ChainError, Outbox
    from fhir_registry.server.serve import AUDIT

    path = place.folder / AUDIT
    if not place.address and not path.exists():
        raise UsageError(
            f"{path}: there is no audit trail yet; it begins with the first request to `cuvil registry serve`"
        )
    store = place.open()
    outbox = Outbox(store.database)
    try:
        count, digest = outbox.verify()
    except ChainError as error:
        where = "the audit trail in the database" if place.address else str(path)
        raise VerificationFailed("registry-audit", f"{where}: {error}") from None
    finally:
        outbox.close()
        store.close()
    if as_json:
        print_json({"ok": True, "events": count, "sha3_512": digest.hex()})
        return
    print(
        f"{count} events in one chain, the last with SHA3-512 {digest.hex()[:32]}...; "
        "who keeps that sees a chain whose end was cut off"
    )


def migrate(place: Place, as_json: bool) -> None:
    """Make the schema, or bring it to the newest revision."""
    from fhir_registry.store.open import migrate as bring_up

    before, after = bring_up(place.folder, place.address)
    if as_json:
        print_json({"before": before or None, "after": after})
    elif before == after:
        print(f"schema {after}, nothing to do")
    else:
        print(f"schema {after}, before {before}" if before else f"schema {after} made")


def token(address: str, key: Path | None, seconds: int, as_json: bool) -> None:
    """Print a token for the registry at ``address``, signed with the P-384 key of the key folder."""
    from evidence.signing_keys import load_signing_keys
    from evidence.verifier.signing import P384
    from fhir_registry.server.tokens import make_token

    if not address.startswith(("http://", "https://")) or address != address.rstrip("/"):
        raise UsageError(
            f"{address!r} is no address of a registry; give the one it is served at, such as http://127.0.0.1:8080/fhir"
        )
    signer = next(s for s in load_signing_keys(key or current_home().root).signers if s.algorithm == P384)
    made = make_token(signer, address, seconds=seconds)
    if as_json:
        print_json({"token": made, "audience": address, "seconds": seconds})
        return
    print(made)


def _recorded(event: str, fields: dict[str, Json]) -> None:
    remark = audit.record(current_home().root, event, fields)
    if remark:
        note(remark)
