"""The proposal: all differences of two builds, and the field of X.Y.Z.B that the most serious one asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from compiler_kernels.stage import Json
from evidence.classify.build import Build, documents
from evidence.classify.models import compare_models, same_model
from evidence.classify.policies import compare_policies
from evidence.classify.rules import FIELDS, Difference, difference, most_serious

FORMAT: Final = "cuvil-classification/1"
COMPILING: Final = ("source_model", "ir_l0", "frozen_graph", "ir_l1", "ir_l2", "generated_source", "engine")
_SOFTWARE: Final = ("application", "container", "firmware", "framework", "library", "operating-system", "platform")
_MADE: Final = (
    "engine.c",
    "kernels.c",
    "weights.S",
    "engine_weights.bin",
    "kernels.cubin",
    "kernels.ptx",
    "kernels_triton.py",
)
"""Files of the build report that follow from model and policy; the others are the runtime."""


@dataclass(frozen=True)
class Proposal:
    """``field``: major, minor, corrective, build or none. ``versions``: what the policies call the two builds."""

    a: Build
    b: Build
    field: str
    differences: tuple[Difference, ...]
    versions: tuple[str, str]

    @property
    def named(self) -> str | None:
        """The first field of the dotted versions that differs, or ``None`` when they are not both X.Y.Z.B."""
        parts = [re.fullmatch(r".*?(\d+)\.(\d+)\.(\d+)\.(\d+)", version) for version in self.versions]
        if parts[0] is None or parts[1] is None:
            return None
        pairs = zip(parts[0].groups(), parts[1].groups(), ("major", "minor", "corrective", "build"), strict=True)
        return next((field for one, other, field in pairs if one != other), "none")

    @property
    def version_fits(self) -> bool | None:
        """Whether the named versions change a field at least as serious as the proposal; ``None``: not X.Y.Z.B."""
        return None if self.named is None else FIELDS.index(self.named) >= FIELDS.index(self.field)

    def to_json(self) -> dict[str, Json]:
        return {
            "format": FORMAT,
            "a": _side(self.a),
            "b": _side(self.b),
            "field": self.field,
            "differences": [item.to_json() for item in self.differences],
            "versions": {
                "a": self.versions[0],
                "b": self.versions[1],
                "changes": self.named,
                "fits": self.version_fits,
            },
        }


def propose(a: Build, b: Build) -> Proposal:
    """Compare build ``b`` with the older build ``a``."""
    found = compare_models(a, b) + _targets(a, b) + _arithmetic(a, b) + compare_policies(a, b)
    found += _compilers(a, b) + _components(a, b) + _evidence(a, b) + _configuration(a, b)
    if not found and _engine(a) != _engine(b):
        found.append(difference("engine.unexplained", "every record but that of the engine agrees"))
    found.sort(key=lambda item: -FIELDS.index(item.rule.field))
    versions = (a.statement.model_version, b.statement.model_version)
    return Proposal(a, b, most_serious(found), tuple(found), versions)


def _side(build: Build) -> dict[str, Json]:
    return {
        "engine": build.engine.name,
        "model_version": build.statement.model_version,
        "target": build.statement.target,
        "sha3_512": _engine(build),
    }


def _engine(build: Build) -> str:
    return build.statement.subject_digests["sha3_512"]


def _targets(a: Build, b: Build) -> list[Difference]:
    if a.statement.target == b.statement.target:
        return []
    return [difference("target", f"{a.statement.target} became {b.statement.target}")]


def _arithmetic(a: Build, b: Build) -> list[Difference]:
    """Other choices of arithmetic for the same model; with another model they follow from it."""
    frozen = [build.digest("frozen_graph", "frozen_graph.json") or build.statement.frozen_graph for build in (a, b)]
    if frozen[0] == frozen[1] or not same_model(a, b):
        return []
    said = f"{a.statement.arithmetic} became {b.statement.arithmetic}"
    if a.statement.arithmetic == b.statement.arithmetic:
        said = f"{a.statement.arithmetic} with other choices"
    if all(_is_measured(build) for build in (a, b)):
        ratios = [build.facts("equivalence")["errors"]["rms_ratio_geometric_mean"] for build in (a, b)]
        return [
            difference("arithmetic.measured", f"{said}; rms error {ratios[0]:.4} and {ratios[1]:.4} of onnxruntime's")
        ]
    return [difference("arithmetic.unmeasured", f"{said}; one build has no passed comparison with measured errors")]


def _is_measured(build: Build) -> bool:
    facts = build.facts("equivalence")
    errors = facts.get("errors")
    measured = isinstance(errors, Mapping) and isinstance(errors.get("rms_ratio_geometric_mean"), str)
    held = facts.get("verdict") == "passed" and bool(facts.get("errors_limit")) and not facts.get("errors_beyond_limit")
    return measured and held


def _code_versions(build: Build) -> dict[str, str]:
    return {record.stage: record.code_version for record in build.chain.records}


def _compilers(a: Build, b: Build) -> list[Difference]:
    found = []
    versions = [_code_versions(build) for build in (a, b)]
    others = [stage for stage in COMPILING if versions[0].get(stage) != versions[1].get(stage)]
    if others:
        found.append(difference("compiler.cuvil", f"other code in the stages {', '.join(others)}"))
    if a.digest("engine", "build.json") == b.digest("engine", "build.json"):
        return found
    reports = documents(a, b, "engine", "build.json")
    if isinstance(reports, str):
        return [*found, difference("compiler.untold", f"the build report of {reports} is not in the store")]
    one, other = reports
    if one.get("compiler") != other.get("compiler"):
        said = [f"{r['compiler'].get('name')} {r['compiler'].get('version')}" for r in (one, other)]
        found.append(difference("compiler.toolchain", f"{said[0]} became {said[1]}"))
    elif a.statement.target == b.statement.target and _flags(one) != _flags(other):
        found.append(difference("compiler.toolchain", "other flags or files of the C compiler"))
    runtime = [{n: f for n, f in r.get("files", {}).items() if n not in _MADE} for r in (one, other)]
    names = sorted(n for n in {*runtime[0], *runtime[1]} if runtime[0].get(n) != runtime[1].get(n))
    if names and not others:
        found.append(difference("compiler.cuvil", f"other code in {', '.join(names[:4])}{' ...' * (len(names) > 4)}"))
    return found


def _flags(report: Mapping[str, Any]) -> list[Any]:
    return [report.get("commands"), report.get("environment"), report.get("target")]


def _components(a: Build, b: Build) -> list[Difference]:
    bills = [bill for bill in (a.sbom(), b.sbom()) if bill is not None]
    if len(bills) == 2:
        one, other = (_software(bill) for bill in bills)
    elif _engine(a) == _engine(b):
        return []
    else:
        reports = documents(a, b, "engine", "build.json")
        if isinstance(reports, str):
            return [difference("sbom.untold", "give both engines their bills with `cuvil sbom`")]
        one, other = ({str(item["origin"]): "" for item in report.get("linked", [])} for report in reports)
    found = [difference("sbom.added", f"{n} {other[n]}".rstrip()) for n in sorted({*other} - {*one})]
    found += [difference("sbom.changed", f"without {n} {one[n]}".rstrip()) for n in sorted({*one} - {*other})]
    changed = sorted(n for n in {*one} & {*other} if one[n] != other[n])
    return found + [difference("sbom.changed", f"{n} {one[n]} became {other[n]}") for n in changed]


def _software(bill: Mapping[str, Any]) -> dict[str, str]:
    """Name to version of the software components. Single files, the model and algorithms have rules of their own."""
    items = [c for c in bill.get("components", []) if c.get("type") in _SOFTWARE]
    return {str(c.get("name")): str(c.get("version", "")) for c in items}


def _evidence(a: Build, b: Build) -> list[Difference]:
    records = [{r.stage: r for r in build.chain.records if r.stage not in COMPILING} for build in (a, b)]
    others = []
    for stage in sorted({*records[0], *records[1]}):
        one, other = records[0].get(stage), records[1].get(stage)
        if one is None or other is None or (one.code_version, one.config) != (other.code_version, other.config):
            others.append(stage)
    found = [difference("evidence", f"other code or settings of {', '.join(others)}")] if others else []
    if _engine(a) != _engine(b) and b.statement.equivalence.verdict != "passed":
        verdict, grade = b.statement.equivalence.verdict, b.statement.equivalence.grade
        found.append(difference("comparison.untold", f"verdict of B: {verdict} ({grade})"))
    verdicts = [f"{build.statement.equivalence.verdict} ({build.statement.equivalence.grade})" for build in (a, b)]
    if verdicts[0] != verdicts[1]:
        found.append(difference("evidence", f"comparison with the reference: {verdicts[0]} became {verdicts[1]}"))
    return found


def _configuration(a: Build, b: Build) -> list[Difference]:
    """Settings of compiling stages. The target has a rule of its own."""
    others = []
    for stage in COMPILING:
        records = [build.chain.record(stage) for build in (a, b)]
        configs = [{k: v for k, v in r.config.items() if k != "target"} if r else None for r in records]
        if configs[0] != configs[1]:
            others.append(stage)
    return [difference("configuration", f"other settings of {', '.join(others)}")] if others else []
