"""The deployment statement beside a release: signed by the device, about this release, and of this machine if asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evidence.verifier.canonical import MalformedError
from evidence.verifier.deployment import Deployment, read_deployment, this_fingerprint
from evidence.verifier.dsse import PAYLOAD_TYPE, read_envelope
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.signers import (
    Moment,
    check_algorithms,
    check_role,
    check_used,
    find_keys,
    judge,
    read_material,
    stated_time,
)
from evidence.verifier.signing import P384, REQUIRED_ALGORITHMS
from evidence.verifier.subjects import subject_of
from evidence.verifier.x509 import DEPLOYMENT

if TYPE_CHECKING:
    from evidence.verifier.release_parts import Contents


def check_device(contents: Contents, this_device: bool) -> tuple[Deployment | None, str]:
    """The deployment of this release, or ``None`` where there is none and none is asked for."""
    name = contents.deployment_name
    if name not in contents.listing.digests:
        if this_device:
            raise MalformedError(f"{name} is missing: this release was not deployed here; run `cuvil deploy` first")
        return None, "no deployment statement is here, and none was asked for"
    try:
        deployment = _read(contents, name)
    except VerificationFailed as error:
        # Under its own name, and as a failed deployment too.
        if error.check in contents.findings.names and error.check != "device":
            contents.findings.fail(error.check, f"{name}: {error}")
        raise VerificationFailed("device", f"{name}: {error}") from None
    except MalformedError as error:
        raise MalformedError(f"{name}: {error}") from None
    stated = deployment.fingerprint
    if not this_device:
        return deployment, f"deployed on the device with fingerprint {stated.digest[:16]}... ({stated.grade})"
    here = this_fingerprint()
    if here != stated:
        raise MalformedError(
            f"{name}: this release was deployed on another device: its fingerprint is {stated.digest[:16]}..., that of "
            f"this one {here.digest[:16]}..."
        )
    return deployment, f"this is the device it was deployed on ({stated.grade} fingerprint {stated.digest[:16]}...)"


def _read(contents: Contents, name: str) -> Deployment:
    data = contents.listing.read(name)
    envelope = read_envelope(data)
    if envelope.encode() != data or envelope.payload_type != PAYLOAD_TYPE:
        raise MalformedError("it is not byte for byte its own encoding, or of another payload type")
    material = read_material(envelope.verification_material)
    keys = find_keys(envelope, contents.root, material.certificates)
    # aarch64 devices sign with P-384 alone.
    check_algorithms(keys, (P384,) if len(keys) == 1 else REQUIRED_ALGORITHMS)
    if not all(key.holds(envelope.signed_bytes) for key in keys):
        raise MalformedError("a signature does not hold for its payload")
    found = read_deployment(envelope.payload)
    made = stated_time(found.created)
    if made < contents.moment.at:
        raise VerificationFailed("clock-before-issue", f"it states {found.created}, before the release it deploys")
    if material.timestamps:
        raise MalformedError("a timestamp beside a deployment is not supported")
    moment = Moment(made, False)
    check_used(material, judge(keys, contents.root, material, moment, DEPLOYMENT))
    check_role(keys, contents.root, moment, "device")
    release, listing = contents.statement, contents.listing
    wanted = {file: subject_of(file, listing.digests[file]) for file in (release.engine, contents.release_name)}
    if dict(found.subjects) != wanted:
        raise MalformedError("it is about another engine or release")
    if (found.model_version, found.compile_config, found.model) != (
        release.model_version,
        release.triple["compile_config"],
        release.model,
    ):
        raise MalformedError("model, version or compile-config digest are not those of the release")
    return found
