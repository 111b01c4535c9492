"""A short run of the registry's fuzzer; `make test-registry-fuzz` is the long one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from registry_fuzz import ALLOWED, Fuzzer, outcome_fault
from registry_process import Server
from registry_requests import Asker, Seen
from registry_values import Maker, broken, text_of

from fhir_registry.definitions.types import r5
from fhir_registry.json_text import JsonError, read_json
from fhir_registry.search.extract import index_rows
from fhir_registry.validation.walk import validate


def test_no_answer_is_a_5xx_and_every_refusal_an_outcome(tmp_path: Path) -> None:
    server = Server(tmp_path, *ALLOWED)
    try:
        found = Fuzzer(server, 7).run(8.0, 1500)
    finally:
        log = server.stop()
    assert not found.faults, found.faults
    assert "Traceback" not in log, log
    assert found.statuses[200] and found.statuses[201] and found.statuses[422], found.statuses


def test_the_fuzzer_sees_what_is_wrong() -> None:
    good = {
        "resourceType": "OperationOutcome",
        "issue": [{"severity": "error", "code": "invalid", "details": {"text": "x"}}],
    }
    assert outcome_fault(400, good) == ""
    assert "an OperationOutcome" in outcome_fault(400, {"resourceType": "Bundle"})
    assert "invalid" in outcome_fault(400, {**good, "issue": [{"severity": "bad", "code": "invalid"}]})
    assert "says nothing" in outcome_fault(400, {**good, "issue": [{"severity": "error", "code": "invalid"}]})


def test_most_resources_it_makes_are_valid_until_it_breaks_them() -> None:
    maker = Maker(random.Random(1))
    made = [maker.resource(kind, 0.05) for kind in ("Organization", "Device", "DeviceDefinition") for _ in range(20)]
    assert sum(not [i for i in validate(item) if i.severity == "error"] for item in made) > 20
    rng = random.Random(2)
    assert any([i for i in validate(broken(rng, item)) if i.severity == "error"] for item in made)
    asker = Asker(rng, Seen())
    assert len({asker.ask().method for _ in range(300)}) > 6


def test_the_validator_ends_for_any_json() -> None:
    """All resource types, made from their definitions and broken: issues, never an exception."""
    rng = random.Random(5)
    maker = Maker(rng)
    kinds = sorted(n for n, s in r5()._raw["structures"].items() if s["kind"] == "resource" and not s["abstract"])
    for number in range(2500):
        value: Any = maker.resource(kinds[number % len(kinds)], rng.choice((0.0, 0.1, 0.3)))
        for _ in range(rng.choice((0, 1, 1, 3))):
            value = broken(rng, value)
        try:
            value = read_json(text_of(value))
        except JsonError:
            continue
        issues = validate(value)
        if isinstance(value, dict) and not issues:
            index_rows(value)
