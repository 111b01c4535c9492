"""A short run of the registry's fuzzer; `make test-registry-fuzz` is the long one."""

from __future__ import annotations

import random
from pathlib import Path

from registry_fuzz import Fuzzer, outcome_fault
from registry_process import Server
from registry_requests import Asker, Seen
from registry_values import Maker, broken

from fhir_registry.validation.walk import validate


def test_no_answer_is_a_5xx_and_every_refusal_an_outcome(tmp_path: Path) -> None:
    server = Server(tmp_path)
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
