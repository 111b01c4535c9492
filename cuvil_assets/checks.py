"""What each asset is checked for, on the artefacts themselves, whether they were computed or came from the cache."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compiler_kernels.errors import CuvilError
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.verify import verify
from compiler_kernels.policy import policy_from_json
from compiler_kernels.stage import StageResult
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain.driver import ALLOCATORS
from compiler_kernels.toolchain.elf import read_sections
from cuvil_assets.chain import BUILD_PROOF, COVERAGE, DATASET, DECISIONS, REPRODUCIBILITY, SBOM
from cuvil_assets.execution import Build, difference, error_sentence
from evidence.reference import graph_bounds, load_graph
from evidence.verifier.errors import VerifierError
from evidence.verifier.verify import verify_engine


@dataclass(frozen=True)
class Outcome:
    """``passed`` with one sentence; ``warning`` marks a check that could not be made and blocks nothing."""

    passed: bool
    sentence: str
    warning: bool = False


Check = Callable[[Build, StageResult], Outcome]


def policy_canonical(build: Build, result: StageResult) -> Outcome:
    """``policy.json`` reads back to exactly its own bytes."""
    try:
        policy_from_json(result.artifact("policy.json").data)
    except (CuvilError, VerifierError) as error:
        return Outcome(False, str(error))
    return Outcome(True, "policy.json reads back to its own bytes")


def ir_round_trip(build: Build, result: StageResult) -> Outcome:
    """The IR verifies against the rules of its level, and parsing then printing gives the same bytes."""
    try:
        module = parse_module(result.principal.text)
        verify(module)
    except (CuvilError, VerifierError, ValueError) as error:
        return Outcome(False, f"{result.principal.name} does not verify: {error}")
    same = print_module(module).encode() == result.principal.data
    found = "verifies and reads back to its own bytes" if same else "does not read back to its own bytes"
    return Outcome(same, f"{result.principal.name} {found}")


def independent_reader(build: Build, result: StageResult) -> Outcome:
    """The independent reference reads the frozen graph, and finds as many operations as the text form has."""
    data = result.artifact("frozen_graph.json").data
    least = {name: sizes[0] for name, sizes in graph_bounds(data).items()}
    graph = load_graph(data, result.artifact("weights.bin").data, least)
    listed = len(parse_module(result.principal.text).main.ops)
    same = len(graph.nodes) == listed
    return Outcome(same, f"the independent reader finds {len(graph.nodes)} operations, the text form has {listed}")


def memory_plan(build: Build, result: StageResult) -> Outcome:
    """The arena is at least as large as the largest set of buffers alive at one time."""
    plan = json.loads(result.artifact("memory.json").data)
    arena, bound = int(plan["arena_bytes"]), int(plan["lower_bound_bytes"])
    return Outcome(arena >= bound, f"the arena has {arena} bytes; buffers alive at one time need {bound}")


def no_allocation(build: Build, result: StageResult) -> Outcome:
    """The generated program names no allocator."""
    found = sorted(ALLOCATORS & set(re.findall(r"\w+", result.principal.text)))
    return Outcome(not found, f"engine.c names {', '.join(found) or 'no allocator'}")


def no_allocator_linked(build: Build, result: StageResult) -> Outcome:
    """The linker's symbol table, before it was stripped, held no allocator."""
    linked = json.loads(result.artifact("build.json").data)["allocator_linked"]
    return Outcome(linked is False, "no allocator is linked" if linked is False else "an allocator is linked")


def static_executable(build: Build, result: StageResult) -> Outcome:
    """An ELF file for the target's machine, of the size that was recorded, without interpreter and dynamic section: but
    for GPU targets, whose driver the system's loader brings."""
    data = result.principal.data
    sections = {section.name for section in read_sections(data)}
    machine = int.from_bytes(data[18:20], "little")
    target = resolve_target(build.request.target)
    fine = (
        machine == target.elf_machine
        and (bool(target.gpu) or not {".interp", ".dynamic"} & sections)
        and len(data) == result.facts["engine_bytes"]
    )
    kind = "not a static" if not fine else "a dynamic" if target.gpu else "a static"
    return Outcome(fine, f"{kind} {target.machine} executable of {len(data)} bytes")


def within_budget(build: Build, result: StageResult) -> Outcome:
    """Memory and measured latency are within the policy's limits, as far as it has any."""
    report = json.loads(result.principal.data)
    policy = policy_from_json(build.records.read("source_model").result.artifact("policy.json").data)
    needed, latency, budget = report["memory_bytes"], report["latency"], policy.budget
    if budget is None:
        return Outcome(report["verdict"] == "no budget", f"{needed} bytes of memory; the policy sets no budget")
    fine, said = report["verdict"] == "met", f"{needed} bytes of memory"
    if budget.memory_mb is not None:
        fine = fine and needed <= budget.memory_mb * 1e6
        said += f" of {budget.memory_mb:g} million"
    if budget.latency_ms is not None:
        fine = fine and latency is not None and latency["median_ms"] <= budget.latency_ms
        said += f", {latency['median_ms'] if latency else 'unknown'} of {budget.latency_ms:g} ms per inference"
    return Outcome(fine, said)


def bits_equal(build: Build, result: StageResult) -> Outcome:
    """Every output value of the engine has the bits of the independent reference."""
    report = json.loads(result.principal.data)
    if report["verdict"] == "not executed":
        return Outcome(False, "not executed: this machine cannot run the target, so nothing was compared", warning=True)
    if report["verdict"] != "passed" or report["differing_values"] or not report["compared_values"]:
        return Outcome(False, difference(result.facts, build.request.engine_name))
    said = f"{report['compared_values']} values on {report['inputs']} inputs equal bit for bit"
    if resolve_target(build.request.target).gpu:
        said += f" ({report['grade']})"
    if "decisions" in report:
        answers = report["decisions"]
        said += f"; {answers['inferences'] + answers['given']} answers of the clinical logic equal the evaluator's"
    return Outcome(True, said)


def error_within_limit(build: Build, result: StageResult) -> Outcome:
    """No tensor's rms error against binary64 passes the policy's multiple of onnxruntime's."""
    errors = json.loads(result.principal.data)["errors"]
    if errors["beyond_limit"]:
        return Outcome(False, error_sentence(result.facts, build.request.engine_name))
    compared = errors["summary"]["compared_tensors"]
    if not compared:
        return Outcome(True, "not compared: onnxruntime is not installed, or shows no tensor to compare")
    largest, limit = errors["summary"]["rms_ratio_largest"], errors["limit"]
    return Outcome(True, f"{compared} tensors, the largest {largest:.3g} times onnxruntime's (limit {limit})")


def proof_verifies(build: Build, result: StageResult) -> Outcome:
    """The proof verifies offline beside the engine of this build, against the trust root of this home."""
    engine = build.records.read("engine").result.principal
    with tempfile.TemporaryDirectory(prefix="cuvil-verify-") as folder:
        path = Path(folder) / build.request.engine_name
        path.write_bytes(engine.data)
        proof = Path(folder) / "proof.json"
        proof.write_bytes(result.principal.data)
        report = verify_engine(path, proof)
    failed = "; ".join(f"{item.name}: {item.sentence}" for item in report.failures)
    return Outcome(report.ok, f"all {len(report.checks)} checks hold" if report.ok else failed)


def bill_names_the_engine(build: Build, result: StageResult) -> Outcome:
    """The bill is sound by CycloneDX's schema and references, and its subject has this engine's SHA3-512."""
    from evidence.sbom.check import problems

    wrong = problems(result.principal.data)
    if wrong:
        return Outcome(False, wrong[0])
    hashes = json.loads(result.principal.data)["metadata"]["component"]["hashes"]
    engine = build.records.read("engine").result.principal
    stated = {item["alg"]: item["content"] for item in hashes}
    same = stated.get("SHA3-512") == engine.sha3_512
    return Outcome(same, f"the bill is about {'this' if same else 'another'} engine")


def splits_disjoint(build: Build, result: StageResult) -> Outcome:
    """No two splits share an item, or a person waived exactly what they share."""
    facts = result.facts
    verdict = facts["verdict"]
    if verdict == "not stated":
        return Outcome(False, "the policy has no section dataset, so nothing says what the model was made with", True)
    if verdict == "waived":
        return Outcome(True, f"{facts['waived_by']} waived what the splits share: {facts['reason']}")
    said = f"the splits share {facts['overlaps']} groups of items and repeat {facts['duplicates']}"
    return Outcome(verdict == "passed", f"{said}; the policy {'allows' if verdict == 'passed' else 'refuses'} that")


def covered(build: Build, result: StageResult) -> Outcome:
    """Every figure reaches its limit in the policy, no record was lost, and clang counts the same."""
    facts = result.facts
    if facts["verdict"] == "not stated":
        return Outcome(False, "the policy has no clinical logic with a section coverage, so nothing was recorded", True)
    return Outcome(facts["verdict"] == "passed", str(facts["sentence"]))


def every_byte_again(build: Build, result: StageResult) -> Outcome:
    """Every rebuild gave every recorded byte, and what the policy asks for was done."""
    facts = result.facts
    if facts["verdict"] == "passed":
        return Outcome(True, f"{facts['rebuilds']} rebuilds, all equal; {facts['second_compiler']}")
    shortfalls = facts["shortfalls"]
    assert isinstance(shortfalls, list)
    said = [str(item) for item in (facts["first_difference"], *shortfalls) if item]
    return Outcome(False, "; ".join(said) or str(facts["second_compiler"]))


def limits_kept(build: Build, result: StageResult) -> Outcome:
    """No more decisions flip on the frozen test set than the policy allows, and its limits are reached, or waived."""
    facts = result.facts
    verdict = facts["verdict"]
    if verdict == "not stated":
        return Outcome(False, "the policy has no section recertification, so nothing says what decisions must do", True)
    if verdict == "waived":
        return Outcome(True, str(facts["waived"]))
    broken = facts["findings"]
    assert isinstance(broken, list)
    said = f"{facts['flips']} of {facts['items']} decisions flipped, AUC {facts['auc']}"
    said += f", sensitivity {facts['sensitivity']}, specificity {facts['specificity']}"
    return Outcome(verdict == "passed", said + (f"; broken: {', '.join(map(str, broken))}" if broken else ""))


CHECKS: dict[str, dict[str, Check]] = {
    "source_model": {"policy_canonical": policy_canonical},
    "ir_l0": {"ir_round_trip": ir_round_trip},
    "frozen_graph": {"ir_round_trip": ir_round_trip, "independent_reader": independent_reader},
    "ir_l1": {"ir_round_trip": ir_round_trip},
    "ir_l2": {"ir_round_trip": ir_round_trip, "memory_plan": memory_plan},
    "generated_source": {"no_allocation": no_allocation},
    "engine": {"no_allocator_linked": no_allocator_linked, "static_executable": static_executable},
    "budget": {"within_budget": within_budget},
    "equivalence": {"bits_equal": bits_equal, "error_within_limit": error_within_limit},
    BUILD_PROOF: {"proof_verifies": proof_verifies},
    SBOM: {"bill_names_the_engine": bill_names_the_engine},
    COVERAGE: {"covered": covered},
    DATASET: {"splits_disjoint": splits_disjoint},
    DECISIONS: {"limits_kept": limits_kept},
    REPRODUCIBILITY: {"every_byte_again": every_byte_again},
}
