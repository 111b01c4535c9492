"""``cuvil approve``, ``release``, ``deploy`` and ``bundle``."""

from __future__ import annotations

import secrets
import shlex
import subprocess
import sys
from pathlib import Path

from compiler_kernels.policy import load_policy, policy_from_json
from compiler_kernels.stage import Json
from cuvil_assets import audit
from cuvil_assets.cli.outcome import note, print_json
from cuvil_assets.files import write_atomic
from cuvil_assets.home import current_home
from cuvil_assets.nonconformities import refuse_withdrawn
from cuvil_assets.store import ContentStore
from evidence import approve as approving
from evidence import bundle as bundling
from evidence import deploy as deploying
from evidence import release as releasing
from evidence.delivered import Delivered
from evidence.page import proof_page
from evidence.signing_keys import SigningKeys, Stamper, load_signing_keys
from evidence.timestamping import request_der, request_timestamp, token_of
from evidence.verifier.canonical import MalformedError
from evidence.verifier.digests import digest_file
from evidence.verifier.dsse import read_envelope
from evidence.verifier.errors import UsageError
from evidence.verifier.listing import list_release
from evidence.verifier.statement import Statement, read_statement
from evidence.verifier.trust import default_trust_root, load_trust_root


def approve(engine: Path, role: str, person: str, key: Path, statement: str, as_json: bool) -> None:
    """Write the approval beside the engine."""
    made = approving.approve(engine, role, person, load_signing_keys(key), statement=statement)
    path = _write(engine.with_name(made.name), made.data)
    fields: dict[str, Json] = {"engine": engine.name, "role": role, "files": list(made.files), "approval": path.name}
    _recorded("approval", fields, path, person)
    if as_json:
        print_json({"approval": str(path), "role": role, "person": person, "files": list(made.files)})
        return
    print(f"{path}: {person} approves as {role}: {', '.join(made.files)}")


def release(
    engine: Path,
    output: Path,
    policy: Path | None,
    key: Path | None,
    trust_root: Path | None,
    timestamp_command: str,
    as_json: bool,
) -> None:
    """Make the release, with a line for each step."""
    home = current_home()
    delivered = Delivered(engine)
    build = _statement(delivered)
    text, canonical = _policy(policy, build, ContentStore(home.store))
    keys = _keys(key)
    refuse_withdrawn(home, digest_file(engine).sha3_512)
    done = releasing.release(
        engine,
        output,
        canonical,
        keys,
        policy_yaml=text,
        trust_root=trust_root,
        home=home.root,
        stamp=stamper(timestamp_command) if timestamp_command else _authority(canonical, trust_root),
        extra={"proof.html": proof_page(delivered.proof(), delivered.stem)},
        progress=(lambda step: None) if as_json else _step,
    )
    made: dict[str, Json] = {
        "engine": engine.name,
        "model_version": build.model_version,
        "keys": list(keys.key_ids),
        "files": len(done.files),
    }
    _recorded("release", made, done.folder)
    _shown_in_dagster(build, done)
    if as_json:
        print_json({"release": str(done.folder), "files": list(done.files), "report": done.report.to_json()})
        return
    for item in done.report.checks:
        print(f"{item.status:12} {item.name:24} {item.sentence}")
    print(f"{done.folder}: released, {len(done.files)} files")


def _shown_in_dagster(build: Statement, done: releasing.Released) -> None:
    """The release as a materialisation in the user interface; without one it is no less a release."""
    from cuvil_assets.chain import RELEASE_PROOF
    from cuvil_assets.release_event import report

    metadata: dict[str, str | int] = {"folder": done.folder.name, "files": len(done.files)}
    digest = audit.digest_of(done.folder)
    remark = report(current_home(), RELEASE_PROOF, build.model_version, build.target, digest, metadata)
    if remark:
        note(f"the release {remark}")


def deploy(folder: Path, key: Path | None, trust_root: Path | None, as_json: bool) -> None:
    """Write the deployment statement into the release folder, then verify it for this device."""
    from evidence.verifier.release import verify_release

    for item in list_release(folder).digests.values() if folder.is_dir() else ():
        refuse_withdrawn(current_home(), item.sha3_512)
    name, data = deploying.deploy(folder, _keys(key), trust_root)
    path = _write(folder / name, data)
    report = verify_release(folder, trust_root, this_device=True)
    if not report.ok:
        path.unlink(missing_ok=True)
        report.raise_if_failed()
    _recorded("deployment", {"deployment": name}, path)
    if as_json:
        print_json({"deployment": str(path), "report": report.to_json()})
        return
    print(f"{path}: deployed on this device")


def bundle(folder: Path, output: Path, as_json: bool) -> None:
    """Write the zip."""
    if output.is_dir():
        raise UsageError(f"{output}: is a directory; give the name of the zip file")
    if output.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{output}: lies inside the release, which may hold nothing else; choose another --output")
    data = bundling.bundle(folder)
    _write(output, data)
    if as_json:
        print_json({"bundle": str(output), "bytes": len(data)})
        return
    print(f"{output}: {len(data):,} bytes")


def _recorded(event: str, fields: dict[str, Json], path: Path, person: str = "") -> None:
    """Put what was signed, by digest, into the audit log; a log that cannot be written is a note."""
    remark = audit.record(current_home().root, event, {**fields, "sha3_512": audit.digest_of(path)}, person=person)
    if remark:
        note(remark)


def _step(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def _keys(folder: Path | None) -> SigningKeys:
    return load_signing_keys(folder or current_home().root)


def _statement(delivered: Delivered) -> Statement:
    try:
        return read_statement(read_envelope(delivered.proof()).payload)
    except MalformedError as error:
        raise UsageError(f"{delivered.proof_name}: {error}; build the engine again") from None


def _policy(path: Path | None, build: Statement, store: ContentStore) -> tuple[bytes | None, bytes]:
    """``(YAML text, canonical JSON)`` of the build's policy: from ``path``, or by digest from the store."""
    if path is not None:
        try:
            text = path.read_bytes()
        except OSError as error:
            raise UsageError(f"{path}: the policy cannot be read ({error.strerror}); give the policy file") from None
        return text, load_policy(text, path.name).canonical_json()
    canonical = store.find(build.policy)
    if canonical is None:
        raise UsageError("this machine's store does not hold the policy of this build; give it with --policy")
    return store.find(build.sources.get("policy.yaml", "")), canonical


def _authority(canonical: bytes, trust_root: Path | None) -> Stamper | None:
    """Timestamps from the policy's ``timestamp.url``, or ``None`` where it names no authority."""
    section = policy_from_json(canonical).timestamp
    if section is None:
        return None
    roots = load_trust_root(trust_root or default_trust_root()).tsa_roots

    def stamp(imprint: bytes) -> bytes:
        return request_timestamp(
            section.url, imprint, roots, policy_oid=section.policy_oid, timeout_s=section.timeout_s
        )[0]

    return stamp


def stamper(command: str) -> Stamper:
    """Timestamps from a program: request on its standard input, response on its standard output."""

    def stamp(imprint: bytes) -> bytes:
        nonce = secrets.randbits(63) | 1 << 62
        try:
            done = subprocess.run(
                shlex.split(command), input=request_der(imprint, nonce), capture_output=True, timeout=60, check=False
            )
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"--timestamp-command {command!r} cannot be run ({error}); correct it") from None
        if done.returncode:
            raise UsageError(f"--timestamp-command {command!r} ended with {done.returncode}; run it by itself")
        try:
            return token_of(done.stdout)
        except UsageError as error:
            raise UsageError(f"--timestamp-command {command!r}: {error}; run it by itself") from None

    return stamp


def _write(path: Path, data: bytes) -> Path:
    if path.exists():
        note(f"{path} is replaced")
    try:
        write_atomic(path, data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose a writable folder") from None
    return path
