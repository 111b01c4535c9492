"""``cuvil classify``: the proposed field of X.Y.Z.B, and the statement by which a person confirms it."""

from __future__ import annotations

from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json
from cuvil_assets import audit
from cuvil_assets.cli.outcome import note, print_json
from cuvil_assets.files import write_atomic
from cuvil_assets.home import current_home
from cuvil_assets.store import ContentStore
from evidence.classify.build import read_build
from evidence.classify.compare import Proposal, propose
from evidence.classify.rules import LETTERS
from evidence.classify.statement import check_statement, confirm, statement_name
from evidence.signing_keys import load_signing_keys
from evidence.verifier.canonical import MalformedError
from evidence.verifier.files import read_small
from evidence.verifier.trust import default_trust_root, load_trust_root


def run(a: Path, b: Path, trust_root: Path | None, as_json: bool) -> None:
    """Print the proposal."""
    proposal = _proposal(a, b, trust_root)
    if as_json:
        print_json(proposal.to_json())
        return
    _print(proposal)
    print(f"a person confirms: cuvil classify {a} {b} --confirm --person NAME --key FOLDER")


def run_confirm(
    a: Path,
    b: Path,
    trust_root: Path | None,
    person: str,
    key: Path | None,
    field: str,
    reason: str,
    output: Path | None,
    as_json: bool,
) -> None:
    """Write the signed statement beside ``b``, or to ``output``."""
    proposal = _proposal(a, b, trust_root)
    keys = load_signing_keys(key or current_home().root)
    path = output or proposal.b.engine.with_name(statement_name(proposal, keys))
    if output is None and list(path.parent.glob("*.release.json")):
        raise UsageError(f"{path.parent}: is a release, which may hold nothing else; say where with --output")
    data = confirm(proposal, person, keys, field=field, reason=reason)
    if path.exists():
        note(f"{path} is replaced")
    try:
        write_atomic(path, data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose a writable folder") from None
    chosen = field or proposal.field
    fields: dict[str, Json] = {"proposed": proposal.field, "chosen": chosen, "keys": list(keys.key_ids)}
    fields["sha3_512"] = audit.digest_of(path)
    remark = audit.record(current_home().root, "classification", fields, person=person)
    if remark:
        note(remark)
    if as_json:
        print_json({**proposal.to_json(), "chosen": chosen, "person": person, "statement": str(path)})
        return
    _print(proposal)
    print(f"{path}: {person} confirms {chosen}")


def run_check(a: Path, b: Path, trust_root: Path | None, statement: Path, as_json: bool) -> None:
    """Check a statement against both builds. Raises ``VerificationFailed`` when it does not hold."""
    proposal = _proposal(a, b, trust_root)
    root = load_trust_root(trust_root or default_trust_root())
    data = read_small(statement, "classification", "give the file that --confirm wrote")
    try:
        choice, remarks = check_statement(data, proposal, root)
    except MalformedError as error:
        raise UsageError(f"{statement}: {error}; give the file that --confirm wrote") from None
    if as_json:
        chosen = {"chosen": choice.field, "reason": choice.reason, "person": choice.person, "created": choice.created}
        print_json({**proposal.to_json(), **chosen, "remarks": [*remarks]})
        return
    _print(proposal)
    why = f" ({choice.reason})" if choice.reason else ""
    print(f"{statement}: holds; {choice.person} chose {choice.field}{why}, {choice.created}")
    for remark in remarks:
        print(f"  {remark}")


def _proposal(a: Path, b: Path, trust_root: Path | None) -> Proposal:
    find = ContentStore(current_home().store).find
    return propose(read_build(a, trust_root, find), read_build(b, trust_root, find))


def _print(proposal: Proposal) -> None:
    for name, build in (("A", proposal.a), ("B", proposal.b)):
        digest = build.statement.subject_digests["sha3_512"]
        print(f"{name}  {build.statement.model_version}  {build.statement.target}  sha3-512:{digest[:16]}...")
    for item in proposal.differences:
        untold = "" if item.told else "  [not told by these files]"
        print(f"  {item.rule.field:10} {item.rule.id:22} {item.detail}{untold}")
        print(f"  {'':10} {'':22} because {item.rule.why}")
    print(f"proposal: {proposal.field} ({LETTERS[proposal.field]} of X.Y.Z.B)")
    if proposal.version_fits is False:
        named = " and ".join(proposal.versions)
        print(f"the stated versions {named} change only {proposal.named}: give B another version")
