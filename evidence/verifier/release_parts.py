"""What a release folder holds, checked once its signatures and its list of files are believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from evidence.verifier.approvals import check_approvals, check_separation
from evidence.verifier.build import proof_name
from evidence.verifier.canonical import Json, MalformedError, expect_map, strict_json
from evidence.verifier.dataset import check_dataset
from evidence.verifier.decisions import check_decisions
from evidence.verifier.deployed import check_device
from evidence.verifier.deployment import DEPLOYMENT_SUFFIX, Deployment
from evidence.verifier.dsse import read_envelope
from evidence.verifier.intoto import check_lines
from evidence.verifier.listing import Listing
from evidence.verifier.log import check_log_proof
from evidence.verifier.rebuilds import check_rebuilds
from evidence.verifier.release_statement import DEMANDS, MUST_PASS, Part, ReleaseStatement
from evidence.verifier.report import OK, Checks, Findings
from evidence.verifier.signers import Moment, SignerKey, trusted_keys
from evidence.verifier.statement import Statement, read_statement
from evidence.verifier.trust import TrustRoot
from evidence.verifier.verify import check_build_proof


class Contents:
    """Checks of the files of one release; ``keys`` are its accepted signers."""

    def __init__(
        self,
        listing: Listing,
        root: TrustRoot,
        findings: Findings,
        release_name: str,
        statement: ReleaseStatement,
        moment: Moment,
        keys: Sequence[SignerKey],
    ) -> None:
        self.listing, self.root, self.findings, self.release_name = listing, root, findings, release_name
        self.statement, self.moment, self.keys = statement, moment, keys
        self.build: Statement | None = None
        self.deployment: Deployment | None = None

    @property
    def deployment_name(self) -> str:
        """The one file that may be beside what the release lists; it is signed by the device that wrote it."""
        return proof_name(self.statement.engine).removesuffix(".proof.json") + DEPLOYMENT_SUFFIX

    def check(self, this_device: bool) -> str:
        """Make the checks; returns why those that were not reached were not."""
        find = self.findings
        find.run("replayed-bundle", self._replayed)
        find.run("files-complete", self._files)
        find.run("release-subject", self._subjects)
        if find.failed:
            return "the files are not those of the release"
        self.build = find.run("build-proof", self._build_proof)
        if self.build is None:
            return "the build proof does not hold"
        policy = find.run("policy", partial(self._policy, self.build))
        if policy is not None:
            find.run("demanded-part", partial(self._demanded, policy, self.build))
            approvals = find.run("approvals", partial(check_approvals, self, policy))
            if approvals is not None:
                find.run("approval-separation", partial(check_separation, approvals))
            find.run("rebuilds", partial(check_rebuilds, self, policy))
        find.run("sbom", self._sbom)
        find.run("intoto", partial(check_lines, self))
        find.run("log-inclusion", partial(check_log_proof, self))
        self.deployment = find.run("device", partial(check_device, self, this_device))
        return "what it depends on does not hold"

    def summary(self) -> dict[str, Json]:
        device = None if self.deployment is None else self.deployment.fingerprint.to_json()
        return {"device": device} if device else {}

    def read(self, name: str) -> bytes:
        """Content of a file that the release lists, equal to its subject; ``MalformedError`` otherwise."""
        subject = self.statement.subjects.get(name)
        if subject is None or not subject.matches(self.listing.digests[name]):
            raise MalformedError(f"{name} is not a file of this release")
        return self.listing.read(name)

    def _replayed(self) -> tuple[bool, str]:
        found = self.statement
        try:
            beside = read_statement(read_envelope(self.listing.read(found.proof.file)).payload)
        except MalformedError:
            # Missing or damaged: files-complete and release-subject say so.
            return True, "the proof beside the release cannot tell of another build"
        if beside.head != found.proof_head:
            raise MalformedError(
                f"{self.release_name} is the release of {found.model} {found.model_version}, but the proof beside "
                f"it is that of another build ({beside.model_version}, head {beside.head[:16]}...): a release was "
                "put beside files that are not its own"
            )
        return True, "release and build proof speak of one build"

    def _files(self) -> tuple[bool, str]:
        expected, present = self.statement.subjects, set(self.listing.digests)
        allowed = {self.release_name, self.deployment_name}
        missing = sorted(set(expected) - present)
        extra = sorted(present - set(expected) - allowed)
        changed = sorted(
            name for name, item in expected.items() if name in present and not item.matches(self.listing.digests[name])
        )
        faults = list(self.listing.faults)
        for said, names in (("missing", missing), ("not part of the release", extra), ("changed", changed)):
            if names:
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                faults.append(f"{said}: {', '.join(names[:3])}{more}")
        if allowed & set(expected):
            faults.append("the release lists itself or its deployment")
        if faults:
            raise MalformedError("; ".join(faults))
        return True, f"exactly the {len(expected)} files of the release are there, with all three digests"

    def _subjects(self) -> tuple[bool, str]:
        found = self.statement
        entries = {"proof": found.proof, "policy": found.policy, **found.parts}
        named = {role: (part.file, part.sha3_512) for role, part in entries.items()}
        named |= {f"approval {item.role}": (item.file, item.sha3_512) for item in found.approvals}
        for role, (file, digest) in named.items():
            subject = found.subjects.get(file)
            if subject is None or subject.sha3_512 != digest:
                raise MalformedError(f"the {role} {file} is not a subject of the release with that digest")
        if found.engine not in found.subjects:
            raise MalformedError(f"the engine {found.engine} is not a subject of the release")
        if found.proof.file != proof_name(found.engine):
            raise MalformedError(f"the proof {found.proof.file} is not named after the engine {found.engine}")
        return True, "engine, proof, policy, reports and approvals are subjects with the digests stated"

    def _build_proof(self) -> tuple[Statement, str]:
        found = self.statement
        data = self.read(found.proof.file)
        known = {item.key_id for item in self.root.keys}
        further = tuple(item for item in trusted_keys(self.keys) if item.key_id not in known)
        checks = Checks()
        root = replace(self.root, keys=self.root.keys + further)
        check_build_proof(checks, found.engine, self.listing.digests[found.engine], data, root)
        for item in checks.items:
            if item.status != OK:
                raise MalformedError(f"{found.proof.file}: {item.name}: {item.sentence}")
        build = read_statement(read_envelope(data).payload)
        triple = {
            "model_version": build.model_version,
            "compile_config": {"sha3_512": build.compile_config, "source": build.compile_config_source},
            "hardware_fingerprint": build.hardware_fingerprint,
        }
        if found.triple != triple or found.model_version != build.model_version:
            raise MalformedError("model version, compile-config digest or fingerprint are not those of the build proof")
        return build, f"all {len(checks.items)} checks of the build proof hold"

    def _policy(self, build: Statement) -> tuple[dict[str, Any], str]:
        found = self.statement
        if found.policy.sha3_512 != build.policy:
            raise MalformedError(f"{found.policy.file} is not the policy of the build proof")
        policy = expect_map(strict_json(self.read(found.policy.file)), found.policy.file)
        wanted = build.sources.get("policy.yaml")
        text = found.policy.file.removesuffix(".json") + ".yaml"
        if wanted is not None and text in found.subjects and found.subjects[text].sha3_512 != wanted:
            raise MalformedError(f"{text} is not the policy text that the build read")
        release = expect_map(policy.get("release") or {}, f"{found.policy.file} release")
        demanded = release.get("demand") or []
        if list(found.demanded) != demanded or not set(found.demanded) <= set(DEMANDS):
            raise MalformedError(f"the release says it was demanded {list(found.demanded)}, the policy {demanded}")
        name = expect_map(policy.get("model"), f"{found.policy.file} model").get("name")
        if name != found.model:
            raise MalformedError(f"the release names the model {found.model}, the policy {name}")
        return policy, f"{found.policy.file} is the policy of the build, and the release states what it demands"

    def _demanded(self, policy: Mapping[str, Any], build: Statement) -> tuple[bool, str]:
        found = self.statement
        for name, part in found.parts.items():
            if part.verdict == "failed":
                raise MalformedError(f"the verdict of {name} ({part.file}) is failed")
        for name in ("coverage", "reproducibility", "dataset", "decisions"):
            if name in found.parts:
                self._verdict(found.parts[name])
        remark = ""
        if "dataset" in found.parts:
            remark = "; " + check_dataset(self.read(found.parts["dataset"].file), policy, self.root)
        if "decisions" in found.parts:
            engine = found.subjects[found.engine].sha3_512
            remark += "; " + check_decisions(self.read(found.parts["decisions"].file), policy, engine, self.root)
        equivalence = found.parts.get("equivalence")
        if equivalence is not None and (equivalence.sha3_512, equivalence.verdict) != (
            build.equivalence.report,
            build.equivalence.verdict,
        ):
            raise MalformedError("the equivalence report is not the one of the build proof, or its verdict differs")
        present = {name for name, part in found.parts.items() if name not in MUST_PASS or part.verdict == "passed"}
        present |= {"approvals"} if found.approvals else set()
        present |= {"timestamp"} if self.moment.stamped else set()
        missing = [name for name in found.demanded if name not in present]
        if missing:
            raise MalformedError(f"the policy demands {', '.join(missing)}, which this release lacks or has not passed")
        said = ", ".join(found.demanded) or "nothing"
        return True, f"the policy demands {said}; all of it is here{remark}"

    def _verdict(self, part: Part) -> None:
        """That the release states of a report what the report says; one that says nothing is ``stated``."""
        said = expect_map(strict_json(self.read(part.file)), part.file).get("verdict")
        if part.verdict != (said if isinstance(said, str) and said else "stated"):
            raise MalformedError(f"{part.file} says {said}, the release says {part.verdict}")

    def _sbom(self) -> tuple[bool, str]:
        part = self.statement.parts.get("sbom")
        if part is None:
            return True, "the release holds no SBOM, and its policy demands none"
        document = expect_map(strict_json(self.read(part.file)), part.file)
        if document.get("bomFormat") != "CycloneDX":
            raise MalformedError(f"{part.file} is not a CycloneDX document")
        metadata = expect_map(document.get("metadata"), f"{part.file} metadata")
        component = expect_map(metadata.get("component"), f"{part.file} metadata.component")
        engine = self.statement.subjects[self.statement.engine]
        hashes = component.get("hashes")
        stated = {
            (item.get("alg"), item.get("content"))
            for item in (hashes if isinstance(hashes, list) else [])
            if isinstance(item, dict)
        }
        if ("SHA-256", engine.sha256) not in stated and ("SHA3-512", engine.sha3_512) not in stated:
            raise MalformedError(f"{part.file} describes another engine: its component has no digest of this one")
        return True, f"{part.file} is a CycloneDX document about this engine"
