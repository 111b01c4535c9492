"""``cuvil verify``: the table of checks."""

from __future__ import annotations

from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json
from cuvil_assets import audit
from cuvil_assets.cli.outcome import note, print_json
from evidence.keys import default_home, default_trust_root
from evidence.verifier.release import is_release, verify_release
from evidence.verifier.report import VerifyReport
from evidence.verifier.verify import verify_engine


def run(engine: Path, proof: Path | None, trust_root: Path | None, this_device: bool, as_json: bool) -> int:
    """Verify, print, return the exit code. ``VerificationFailed`` named after the first failed check, but for JSON."""
    release = is_release(engine)
    if engine.is_dir() and not [*engine.glob("*.release.json"), *engine.glob("*.proof.json")]:
        raise UsageError(f"{engine}: the folder holds neither a release nor a proof; give one, or an engine")
    if release and proof is not None:
        raise UsageError("--proof is for an engine by itself; a release carries its own")
    if this_device and not release:
        raise UsageError(f"{engine}: --this-device is for a release folder; an engine by itself is bound to no device")
    if trust_root is None and not default_trust_root().exists():
        raise UsageError(
            f"{default_trust_root()}: this machine has no trust root; give --trust-root FILE with the keys you trust, "
            "or run `cuvil keys init` to make development keys"
        )
    report = (
        verify_release(engine, trust_root, this_device=this_device)
        if release
        else verify_engine(engine, proof, trust_root)
    )
    remark = _record(report, engine, "release" if release else "engine")
    if as_json:
        first = {} if report.ok else {"error": "VerificationFailed", "check": _first(report)}
        print_json({**report.to_json(), **first, **({"audit": remark} if remark else {})})
        return 0 if report.ok else 1
    if remark:
        note(remark)
    for item in report.checks:
        print(f"{item.status:12} {item.name:24} {item.sentence}")
    print(f"trust: {report.trust}" + (f" (grade {report.trust_grade})" if report.trust == "given" else ""))
    report.raise_if_failed()
    print(f"{engine}: verified")
    return 0


def _record(report: VerifyReport, subject: Path, what: str) -> str:
    """Put the verification into the audit log: what by which name and digest, and how it ended."""
    fields: dict[str, Json] = {
        what: subject.name,
        "outcome": "verified" if report.ok else "failed",
        "check": _first(report),
        "trust": report.trust,
        "trust_grade": report.trust_grade,
    }
    digest = audit.digest_of(subject)
    if digest:
        fields[f"{what}_sha3_512"] = digest
    return audit.record(default_home(), "verify", fields)


def _first(report: VerifyReport) -> str:
    return next((item.name for item in (*report.failures, *report.checks) if item.status != "ok"), "")
