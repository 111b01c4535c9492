"""Makes the deployment statement on a device: this release, on this hardware, signed by the device's key."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from evidence.signing_keys import SigningKeys, created_now, sign
from evidence.sm2 import check_signing_machine
from evidence.verifier.deployment import DEPLOYMENT_SUFFIX, NO_SERIAL, Deployment, Fingerprint, this_fingerprint
from evidence.verifier.dsse import read_envelope
from evidence.verifier.errors import UnsupportedError, UsageError
from evidence.verifier.listing import list_release
from evidence.verifier.release import verify_release
from evidence.verifier.release_statement import RELEASE_SUFFIX, read_release_statement
from evidence.verifier.signing import P384
from evidence.verifier.subjects import subject_of


def device_keys(keys: SigningKeys, machine: str | None = None) -> SigningKeys:
    """The keys a device signs with: both on x86-64, P-384 alone where SM2 signing is refused."""
    try:
        check_signing_machine(machine or platform.machine())
    except UnsupportedError:
        return keys.only((P384,))
    return keys


def deploy(
    folder: Path,
    keys: SigningKeys,
    trust_root: Path | None = None,
    *,
    fingerprint: Fingerprint | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, bytes]:
    """``(file name, bytes)`` of the deployment statement for the release in ``folder``, which is verified first.

    Raises ``VerificationFailed`` when the release does not hold, ``UsageError`` when this machine reports neither a
    serial number nor a network address, or ``folder`` is not a folder.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a release folder; unpack the bundle on the device first")
    report = verify_release(folder, trust_root)
    # An earlier deployment, on another device or with an old key, is replaced; all else must hold.
    if any(item.name != "device" for item in report.checks if item.status != "ok"):
        report.raise_if_failed()
    here = fingerprint or this_fingerprint()
    if here.serial == NO_SERIAL and not here.mac:
        raise UsageError("this machine reports neither a serial number nor a network address; it cannot be named")
    listing = list_release(folder)
    name = next(item for item in listing.digests if item.endswith(RELEASE_SUFFIX))
    release = read_release_statement(read_envelope(listing.read(name)).payload)
    created, source = created_now(os.environ if environment is None else environment)
    statement = Deployment(
        subjects={item: subject_of(item, listing.digests[item]) for item in (release.engine, name)},
        model=release.model,
        model_version=release.model_version,
        compile_config=release.triple["compile_config"],
        fingerprint=here,
        created=created,
        created_source=source,
    )
    stem = name.removesuffix(RELEASE_SUFFIX)
    return stem + DEPLOYMENT_SUFFIX, sign(statement.encode(), device_keys(keys)).encode()
