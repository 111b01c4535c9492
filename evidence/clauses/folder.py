"""What lies in a release or build folder, as JSON by artefact name, for the pointers of the clause table.

``proof``, ``release`` are the statements inside the envelopes (signatures are what ``cuvil verify`` checks); ``sbom``,
``equivalence``, ``coverage``, ``reproducibility`` the reports; ``policy`` the policy as JSON; ``licences`` the names of
the licence texts. What is not there is absent; a file that cannot be read is an error, not an open clause.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler_kernels.errors import UsageError
from compiler_kernels.policy import Policy, load_policy
from evidence.verifier.canonical import MalformedError
from evidence.verifier.dsse import read_envelope
from evidence.verifier.files import read_small

ENVELOPES = {"proof": ".proof.json", "release": ".release.json"}
REPORTS = {
    "sbom": ".cdx.json",
    "equivalence": ".equivalence.json",
    "coverage": ".coverage.json",
    "reproducibility": ".reproducibility.json",
}
POLICY = ".policy.yaml"
ARTEFACTS = (*ENVELOPES, *REPORTS, "policy", "licences")


def stem_of(place: Path) -> Path:
    """The common beginning of the files of one engine; ``place`` is the engine or its folder.

    Raises ``UsageError`` for a folder with no proof or with several, or a file that does not exist.
    """
    if not place.is_dir():
        if not place.exists():
            raise UsageError(f"{place}: does not exist; give an engine or its folder")
        return place.with_name(place.stem)
    proofs = sorted(place.glob(f"*{ENVELOPES['proof']}"))
    if len(proofs) != 1:
        said = "holds no proof" if not proofs else f"holds {len(proofs)} proofs"
        raise UsageError(f"{place}: {said}; give the engine itself")
    return proofs[0].with_name(proofs[0].name.removesuffix(ENVELOPES["proof"]))


def read_folder(place: Path, policy: Policy | None = None) -> dict[str, Any]:
    """Every artefact that exists beside ``place``, by name; ``policy`` stands in for a policy file that is absent."""
    stem = stem_of(place)
    found: dict[str, Any] = {}
    for name, suffix in ENVELOPES.items():
        path = stem.with_name(stem.name + suffix)
        if path.exists():
            found[name] = _envelope(path)
    for name, suffix in REPORTS.items():
        path = stem.with_name(stem.name + suffix)
        if path.exists():
            found[name] = _json(path)
    path = stem.with_name(stem.name + POLICY)
    if path.exists():
        policy = load_policy(read_small(path, "policy", "restore it"), str(path))
    if policy is not None:
        found["policy"] = policy_document(policy)
    texts = sorted(p.name for p in (stem.parent / "licences").glob("*.txt"))
    if texts:
        found["licences"] = texts
    return found


def policy_document(policy: Policy) -> Mapping[str, Any]:
    """The policy as JSON, as pointers see it."""
    found: Mapping[str, Any] = policy.model_dump(mode="json", exclude_none=True)
    return found


def _envelope(path: Path) -> Any:
    try:
        return json.loads(read_envelope(read_small(path, "statement", "restore it from the delivery")).payload)
    except (MalformedError, ValueError) as error:
        raise UsageError(f"{path}: is no signed statement ({error}); restore it from the delivery") from None


def _json(path: Path) -> Any:
    try:
        return json.loads(read_small(path, "report", "restore it from the delivery"))
    except ValueError as error:
        raise UsageError(f"{path}: is not JSON ({error}); restore it from the delivery") from None
