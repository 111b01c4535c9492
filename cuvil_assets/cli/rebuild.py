"""``cuvil rebuild``: one rebuild on another machine, and the attestation about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compiler_kernels.errors import UsageError, VerificationFailed
from cuvil_assets import audit
from cuvil_assets.cli.outcome import note, print_json
from cuvil_assets.cli.reproduce import given_sources
from cuvil_assets.files import write_atomic
from cuvil_assets.home import current_home
from cuvil_assets.store import ContentStore
from evidence.reproducibility.attest import attest, read_to_rebuild
from evidence.reproducibility.difference import Comparison
from evidence.reproducibility.inputs import recorded_build
from evidence.reproducibility.plan import make_plan
from evidence.reproducibility.run import rebuild_all
from evidence.signing_keys import load_signing_keys


@dataclass(frozen=True)
class Options:
    """Options of ``cuvil rebuild``."""

    proof: Path
    model: Path | None
    policy: Path | None
    person: str
    key: Path | None
    output: Path | None
    fresh_cache: bool


def run(options: Options, as_json: bool) -> None:
    """Rebuild, compare with the proof, sign. Raises ``VerificationFailed`` (``rebuild``) for a difference, after the
    attestation that says so is written."""
    given = read_to_rebuild(options.proof)
    store = ContentStore(current_home().store)
    sources = given_sources(given.statement, options.model, options.policy)
    if given.policy is not None:
        sources.setdefault("policy.yaml", (f"the policy in {options.proof}", given.policy))
    recorded = recorded_build(given.statement, store.find, sources)
    keys = load_signing_keys(options.key or current_home().root)
    if recorded.other_code and not as_json:
        note(f"this is not the Cuvil that built the engine: stage {recorded.other_code[0]} has other code here")
    comparison = Comparison(recorded, store.find)
    done = rebuild_all(recorded, make_plan(1, fresh_caches=int(options.fresh_cache)), comparison)
    difference = done.differences[0] if done.differences else None
    made = attest(given, recorded, done.rebuilt[0], difference, options.person, keys)
    folder = options.output or (options.proof.parent if options.proof.name.endswith(".proof.json") else Path())
    path = folder / made.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, made.data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose another --output") from None
    remark = audit.record(
        current_home().root,
        "rebuild",
        {"proof": given.proof.name, "verdict": made.rebuild.verdict, "sha3_512": audit.digest_of(path)},
        person=options.person,
    )
    if remark:
        note(remark)
    if difference is not None:
        raise VerificationFailed("rebuild", f"{given.engine.name} is not rebuilt: {difference.sentence()} (see {path})")
    if as_json:
        print_json(
            {
                "attestation": str(path),
                "verdict": made.rebuild.verdict,
                "engine_sha3_512": made.rebuild.rebuilt,
                "person": made.rebuild.person,
                "keys": list(keys.key_ids),
                "other_code": list(recorded.other_code),
            }
        )
        return
    print(f"{path}: {made.rebuild.person} rebuilt {given.engine.name} bit for bit ({recorded.engine_sha3_512[:16]}...)")
