"""Every access is an AuditEvent in the outbox before it is answered, and the outbox shows what was done to it."""

from __future__ import annotations

import base64
import json
import sqlite3
from pathlib import Path

import pytest
from registry_client import Client
from test_registry_validation import DEVICE

from cuvil_assets.cli import main
from fhir_registry.audit.outbox import ChainError, Outbox
from fhir_registry.validation.walk import validate


def test_each_access_is_an_event_before_it_is_answered(registry: Client) -> None:
    made = registry.created({k: v for k, v in DEVICE.items() if k != "id"})
    registry.call("GET", f"DeviceDefinition/{made['id']}")
    registry.call("GET", "DeviceDefinition?identifier=cxr-1.0")
    registry.call("GET", "DeviceDefinition/none")
    registry.call("DELETE", f"DeviceDefinition/{made['id']}")
    events = [json.loads(entry.body) for entry in registry.outbox.entries()]
    assert [(e["action"], e["outcome"]["code"]["code"]) for e in events] == [
        ("C", "0"),
        ("R", "0"),
        ("E", "0"),
        ("R", "4"),
        ("D", "0"),
    ]
    for event in events:
        assert [i for i in validate(event) if i.severity == "error"] == []
    assert events[0]["entity"][0]["what"]["reference"] == f"DeviceDefinition/{made['id']}"
    assert base64.b64decode(events[2]["entity"][0]["query"]) == b"DeviceDefinition?identifier=cxr-1.0"
    assert registry.outbox.verify()[0] == 5


def test_an_event_says_what_was_asked(registry: Client) -> None:
    """An operation or a search by POST creates nothing, and the parameters in a body are no less a search."""
    made = registry.created({k: v for k, v in DEVICE.items() if k != "id"})
    place = f"DeviceDefinition/{made['id']}"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    registry.raw("POST", f"{registry.base}/DeviceDefinition/_search", b"identifier=cxr-1.0", form)
    for path in (f"{place}/$validate", f"{place}/_history", f"{place}/_history/1", "_history", "metadata"):
        registry.call("GET", path)
    registry.call("POST", "", {"resourceType": "Bundle", "type": "batch", "entry": []})
    events = [json.loads(entry.body) for entry in registry.outbox.entries()]
    assert [(e["code"]["coding"][0]["code"], e["action"]) for e in events] == [
        ("create", "C"),
        ("search-type", "E"),
        ("operation", "E"),
        ("history-instance", "R"),
        ("vread", "R"),
        ("history-system", "R"),
        ("capabilities", "R"),
        ("batch", "E"),
    ]
    for event in events:
        assert [i for i in validate(event) if i.severity == "error"] == []
    assert base64.b64decode(events[1]["entity"][0]["query"]) == b"DeviceDefinition/_search?identifier=cxr-1.0"


@pytest.mark.parametrize("kind", ["batch", "transaction"])
def test_a_bundle_names_what_its_entries_were_about(kind: str, registry: Client) -> None:
    made = registry.created({k: v for k, v in DEVICE.items() if k != "id"})
    place = f"DeviceDefinition/{made['id']}"
    organization = {"resourceType": "Organization", "name": "Example"}
    entries = [
        {"request": {"method": "GET", "url": place}},
        {"request": {"method": "GET", "url": "DeviceDefinition?identifier=cxr-1.0"}},
        {"request": {"method": "POST", "url": "Organization"}, "resource": organization},
    ]
    status, _, _ = registry.call("POST", "", {"resourceType": "Bundle", "type": kind, "entry": entries})
    (stored,) = registry.call("GET", "Organization")[2]["entry"]
    event = [json.loads(entry.body) for entry in registry.outbox.entries()][1]
    assert status == 200 and event["code"]["coding"][0]["code"] == kind
    assert [i for i in validate(event) if i.severity == "error"] == []
    assert [e["what"]["reference"] for e in event["entity"] if "what" in e] == [
        place,
        f"Organization/{stored['resource']['id']}",
    ]
    queries = [base64.b64decode(e["query"]) for e in event["entity"] if "query" in e]
    assert queries == [b"DeviceDefinition?identifier=cxr-1.0"]


def filled(path: Path) -> Outbox:
    outbox = Outbox(path)
    for number in range(20):
        assert outbox.append(b'{"n":%d}' % number).result(timeout=10) == number + 1
    return outbox


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE event SET body = '{}' WHERE seq = 7", "entry 7 does not fit"),
        ("DELETE FROM event WHERE seq = 7", "entry 7 is missing"),
        ("UPDATE event SET body = (SELECT body FROM event WHERE seq = 8) WHERE seq = 7", "entry 7 does not fit"),
        ("UPDATE event SET digest = zeroblob(64) WHERE seq = 20", "entry 20 does not fit"),
    ],
)
def test_what_is_done_to_the_outbox_is_seen(tmp_path: Path, change: str, said: str) -> None:
    outbox = filled(tmp_path / "audit.sqlite")
    assert outbox.verify()[0] == 20
    with sqlite3.connect(tmp_path / "audit.sqlite") as database:
        database.execute(change)
    with pytest.raises(ChainError, match=said):
        outbox.verify()
    outbox.close()


@pytest.mark.parametrize("name", ["audit", "tokens"])
def test_a_file_that_is_no_database_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f"{name}.sqlite").write_text("this is no database, whoever put it here\n" * 100)
    assert main(["registry", "serve", "--port", "0", "--data", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"{name}.sqlite" in said and "is no database" in said and "internal error" not in said


def test_a_base_that_is_no_address_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("registry.example", "https://", "registry.example/fhir"):
        assert main(["registry", "serve", "--port", "0", "--data", str(tmp_path), "--base", wrong]) == 2
        assert "is no address" in capsys.readouterr().err


def test_a_damaged_trail_is_said_to_be_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path / "audit.sqlite").close()
    with (tmp_path / "audit.sqlite").open("rb+") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    assert main(["registry", "audit", "--data", str(tmp_path)]) == 2
    assert "its file is damaged" in capsys.readouterr().err


def test_two_processes_share_one_chain(tmp_path: Path) -> None:
    first, second = Outbox(tmp_path / "a.sqlite"), Outbox(tmp_path / "a.sqlite")
    waiting = [(first, second)[n % 2].append(b"%d" % n) for n in range(100)]
    assert sorted(w.result(timeout=20) for w in waiting) == list(range(1, 101))
    assert first.verify()[0] == 100
    first.close()
    second.close()


def test_without_a_trail_nothing_is_answered(registry: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    made = registry.created({k: v for k, v in DEVICE.items() if k != "id"})

    def full(bodies: object) -> list[int]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(registry.outbox._writer, "_commit", full)
    for path in (f"DeviceDefinition/{made['id']}", "DeviceDefinition", "metadata"):
        status, headers, outcome = registry.call("GET", path)
        assert status == 503 and headers["retry-after"] and "audit trail" in outcome["issue"][0]["details"]["text"]
    monkeypatch.undo()
    assert registry.call("GET", f"DeviceDefinition/{made['id']}")[0] == 200
    registry.outbox.verify()
