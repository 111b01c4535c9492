"""R5 Subscriptions by rest-hook: who is told what, in which order, and what happens when the telling fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from registry_client import Client
from registry_receiver import Receiver, receiving
from registry_serving import serving
from test_registry_access import Authority
from test_registry_rest import device

from cuvil_assets.cli import main
from fhir_registry.mapping import names
from fhir_registry.store.sql_store import SqlStore
from fhir_registry.subscriptions.endpoint import EndpointError, Endpoints, read_allowed
from fhir_registry.subscriptions.notifier import Notifier, Pace
from fhir_registry.subscriptions.topics import CHANGED, NEW, WITHDRAWN, topics
from fhir_registry.validation.walk import validate

PACE = Pace(look=0.05, retry=0.1, failures=3)
CHANNEL = {"system": "http://terminology.hl7.org/CodeSystem/subscription-channel-type", "code": "rest-hook"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def registry(tmp_path: Path, receiver: Receiver, open_store_at: Callable[..., SqlStore]) -> Iterator[Client]:
    """A registry on each database that may notify the receiver, and does so without delay."""
    with serving(tmp_path, open_store_at(), frozenset({receiver.host})) as client:
        store = client.store
        notifier = Notifier(store, Endpoints(frozenset({receiver.host})), client.base, PACE)
        try:
            yield client
        finally:
            notifier.close()


def subscription(receiver: Receiver, topic: str, **more: Any) -> dict[str, Any]:
    found = {"resourceType": "Subscription", "status": "requested", "topic": topic, "channelType": CHANNEL}
    return {**found, "endpoint": receiver.address, "contentType": "application/fhir+json", **more}


def model(name: str, status: str = "active", **more: Any) -> dict[str, Any]:
    found = device(name, modifierExtension=[{"url": names.STATUS, "valueCode": status}], **more)
    return {**found, "identifier": [{"system": names.MODEL_VERSION, "value": f"{name}|1"}, *found["identifier"]]}


def active(client: Client, receiver: Receiver, resource: dict[str, Any]) -> str:
    """Subscribe and wait until the handshake was answered."""
    identifier = str(client.created(resource)["id"])
    receiver.until(lambda: client.call("GET", f"Subscription/{identifier}")[2]["status"] == "active")
    return identifier


def changed(client: Client, resource: dict[str, Any], status: str) -> dict[str, Any]:
    wanted = {**resource, "modifierExtension": [{"url": names.STATUS, "valueCode": status}]}
    answered, _, found = client.call("PUT", f"DeviceDefinition/{resource['id']}", wanted)
    assert answered == 200
    return dict(found)


def test_topics_are_served_and_nobody_writes_them(registry: Client) -> None:
    from fhir_registry.seed import seed

    seed(registry.store)
    for topic in topics():
        assert [i for i in validate(topic) if i.severity == "error"] == []
        (found,) = registry.call("GET", f"SubscriptionTopic?url={topic['url']}")[2]["entry"]
        assert found["resource"]["canFilterBy"] == topic["canFilterBy"]
    assert registry.call("POST", "SubscriptionTopic", topics()[0])[0] == 405


@pytest.mark.parametrize("content", ["empty", "id-only", "full-resource"])
def test_a_new_a_changed_and_a_withdrawn_version(registry: Client, receiver: Receiver, content: str) -> None:
    for topic in (NEW, CHANGED, WITHDRAWN):
        active(registry, receiver, subscription(receiver, topic, content=content))
    assert len(receiver.bundles("handshake")) == 3
    made = registry.created(model("m"))
    registry.created(device("an engine"))  # no model version: nobody is told
    registry.call("PUT", f"DeviceDefinition/{made['id']}", {**made, "partNumber": "7"})  # nor of any other change
    receiver.until(lambda: len(receiver.bundles()) == 1)
    changed(registry, made, "unknown")
    receiver.until(lambda: len(receiver.bundles()) == 2)
    changed(registry, made, "retired")
    receiver.until(lambda: len(receiver.bundles()) == 4)
    told = [b["entry"][0]["resource"]["topic"] for b in receiver.bundles()]
    assert told[:2] == [NEW, CHANGED] and sorted(told[2:]) == sorted([CHANGED, WITHDRAWN])
    for headers, bundle in receiver.got:
        assert headers["content-type"].startswith("application/fhir+json")
        assert [i for i in validate(bundle) if i.severity == "error"] == []
    bundle = receiver.bundles()[0]
    (event,) = bundle["entry"][0]["resource"]["notificationEvent"]
    assert event["eventNumber"] == "1"
    address = f"{registry.base}/DeviceDefinition/{made['id']}"
    if content == "empty":
        assert "focus" not in event and len(bundle["entry"]) == 1
        return
    assert event["focus"]["reference"] == address == bundle["entry"][1]["fullUrl"]
    assert ("resource" in bundle["entry"][1]) is (content == "full-resource")
    if content == "full-resource":
        assert bundle["entry"][1]["resource"] == made  # the version of the event, not the current one


def test_filters(registry: Client, receiver: Receiver) -> None:
    by = {"resourceType": "DeviceDefinition", "filterParameter": "identifier"}
    mine = active(
        registry, receiver, subscription(receiver, NEW, filterBy=[{**by, "value": f"{names.MODEL_VERSION}|mine\\|1"}])
    )
    purpose = {"filterParameter": "model-purpose", "modifier": "contains", "value": "PNEUMONIA"}
    active(registry, receiver, subscription(receiver, NEW, filterBy=[purpose]))
    registry.created(model("other"))
    registry.created(model("mine"))
    registry.created(model("cxr", guideline={"intendedUse": "Finds pneumonia."}))
    receiver.until(lambda: len(receiver.bundles()) == 2)
    mine_told = [b for b in receiver.bundles() if b["entry"][0]["resource"]["subscription"]["reference"].endswith(mine)]
    assert len(mine_told) == 1
    status = registry.call("GET", f"Subscription/{mine}/$status")[2]
    assert status["entry"][0]["resource"]["eventsSinceSubscriptionStart"] == "1"
    assert [i for i in validate(status) if i.severity == "error"] == []


def test_order_and_batches(registry: Client, receiver: Receiver) -> None:
    active(registry, receiver, subscription(receiver, NEW, maxCount=4))
    for number in range(10):
        registry.created(model(f"m{number}"))
    receiver.until(lambda: len(set(receiver.numbers())) == 10)
    assert receiver.numbers() == list(range(1, 11))
    assert max(len(b["entry"]) - 1 for b in receiver.bundles()) <= 4


def test_what_fails_is_sent_again_in_order(registry: Client, receiver: Receiver) -> None:
    identifier = active(registry, receiver, subscription(receiver, NEW, maxCount=1))
    receiver.answers += [500, None]
    registry.created(model("a"))
    registry.created(model("b"))
    receiver.until(lambda: len(receiver.numbers()) >= 4)
    assert receiver.numbers() == [1, 1, 1, 2]
    assert registry.call("GET", f"Subscription/{identifier}")[2]["status"] == "active"


def test_after_too_many_failures_it_is_an_error_until_asked_again(registry: Client, receiver: Receiver) -> None:
    identifier = active(registry, receiver, subscription(receiver, NEW))
    place = f"Subscription/{identifier}"
    receiver.answers += [500, 302, 404]
    registry.created(model("a"))
    receiver.until(lambda: registry.call("GET", place)[2]["status"] == "error")
    said = registry.call("GET", f"{place}/$status")[2]["entry"][0]["resource"]
    assert "404" in said["error"][0]["text"] and said["status"] == "error"
    assert not any("elsewhere" in str(body) for _, body in receiver.got)
    registry.created(model("b"))
    missed = registry.call("GET", f"{place}/$events?eventsSinceNumber=1&content=full-resource")[2]
    receiver.until(lambda: len(registry.call("GET", f"{place}/$events")[2]["entry"]) == 3)
    assert missed["type"] == "subscription-notification" and missed["entry"][1]["resource"]["modifierExtension"]
    assert [i for i in validate(missed) if i.severity == "error"] == []
    assert registry.call("GET", f"{place}/$events?eventsSinceNumber=x")[0] == 400
    assert registry.call("GET", f"{place}/$events?x=1")[0] == 400
    again = {**registry.call("GET", place)[2], "status": "requested"}
    assert registry.call("PUT", place, again)[0] == 200
    receiver.until(lambda: registry.call("GET", place)[2]["status"] == "active" and receiver.numbers()[-1:] == [2])


def test_off_deleted_and_ended(registry: Client, receiver: Receiver) -> None:
    off = active(registry, receiver, subscription(receiver, NEW))
    gone = active(registry, receiver, subscription(receiver, NEW))
    ended = registry.created(subscription(receiver, NEW, end="2020-01-01T00:00:00Z"))["id"]
    kept = active(registry, receiver, subscription(receiver, NEW))
    found = registry.call("GET", f"Subscription/{off}")[2]
    assert registry.call("PUT", f"Subscription/{off}", {**found, "status": "off"})[0] == 200
    assert registry.call("DELETE", f"Subscription/{gone}")[0] == 204
    receiver.until(lambda: registry.call("GET", f"Subscription/{ended}")[2]["status"] == "off")
    registry.created(model("a"))
    receiver.until(lambda: receiver.bundles())
    heads = [b["entry"][0]["resource"]["subscription"]["reference"] for b in receiver.bundles()]
    assert heads == [f"{registry.base}/Subscription/{kept}"]
    assert registry.call("GET", f"Subscription/{gone}/$status")[0] == 410
    assert registry.call("GET", "Subscription/none/$status")[0] == 404


def test_heartbeats(registry: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.created(subscription(receiver, NEW, heartbeatPeriod=5))
    receiver.until(lambda: receiver.bundles("heartbeat"), seconds=20)
    assert "notificationEvent" not in receiver.bundles("heartbeat")[0]["entry"][0]["resource"]


def test_secrets_of_subscribers_are_not_served(registry: Client, receiver: Receiver) -> None:
    header = {"name": "Authorization", "value": "Bearer very-secret"}
    identifier = active(registry, receiver, subscription(receiver, NEW, parameter=[header]))
    assert receiver.got[0][0]["authorization"] == "Bearer very-secret"
    place = f"Subscription/{identifier}"
    for path in (place, f"{place}/_history", "_history", "Subscription", f"{place}/$status", f"{place}/$events"):
        assert b"very-secret" not in registry.raw("GET", path)[2]
    found = registry.call("GET", place)[2]
    assert registry.call("PUT", place, {**found, "reason": "another"})[0] == 200  # what is held stays held
    receiver.until(lambda: len(receiver.bundles("handshake")) == 2)
    assert receiver.got[-1][0]["authorization"] == "Bearer very-secret"
    stolen = {**found, "endpoint": "https://thief.example.org/"}
    stolen.pop("id")
    status, _, outcome = registry.call("POST", "Subscription", stolen)
    assert status == 422 and outcome["issue"][0]["expression"] == ["Subscription.parameter[0].value"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"topic": "https://example.org/none"}, "topic"),
    ({"channelType": {"code": "email"}}, "channelType"),
    ({"contentType": "application/fhir+xml"}, "contentType"),
    ({"timeout": 31}, "timeout"),
    ({"heartbeatPeriod": 1}, "heartbeatPeriod"),
    ({"filterBy": [{"filterParameter": "nope", "value": "x"}]}, "filterBy"),
    ({"filterBy": [{"resourceType": "Patient", "filterParameter": "identifier", "value": "x"}]}, "filterBy"),
    ({"filterBy": [{"filterParameter": "identifier", "comparator": "gt", "value": "x"}]}, "filterBy"),
    ({"parameter": [{"name": "X\r\nY", "value": "1"}]}, "parameter[0].name"),
    ({"parameter": [{"name": "Host", "value": "x"}]}, "parameter[0].name"),
    ({"parameter": [{"name": "X", "value": "a\r\nY: 1"}]}, "parameter[0].value"),
    ({"parameter": [{"name": "X", "value": "held:guess"}]}, "parameter[0].value"),
    ({"endpoint": "mailto:a@example.org"}, "endpoint"),
]
PRIVATE = (
    "http://127.0.0.1:1/", "https://127.0.0.1/", "https://localhost/", "https://10.0.0.8/", "https://[::1]/",
    "https://169.254.169.254/latest/meta-data", "https://[::ffff:10.0.0.8]/", "http://example.org/",
    "ftp://example.org/", "file:///etc/passwd", "https://user:pw@example.org/", "https://intranet/",
    "https://example.org:99999/", "https://0.0.0.0/", "https://[fe80::1]/", "https://[64:ff9b::a00:8]/",
    "https://exa\u0301mple.org/",
)  # fmt: skip


def test_what_is_refused(registry: Client, receiver: Receiver) -> None:
    for more, element in [*REFUSED, *(({"endpoint": address}, "endpoint") for address in PRIVATE)]:
        status, _, found = registry.call("POST", "Subscription", {**subscription(receiver, NEW), **more})
        assert status == 422, more
        assert found["issue"][0]["expression"] == [f"Subscription.{element}"], more
    assert registry.ids("Subscription") == [] and receiver.got == []


def test_a_client_cannot_call_itself_active(registry: Client, receiver: Receiver) -> None:
    receiver.answers += [500] * 3
    made = registry.created(subscription(receiver, NEW, status="active"))
    assert made["status"] == "requested"
    receiver.until(lambda: registry.call("GET", f"Subscription/{made['id']}")[2]["status"] == "error")


def test_hosts_that_an_operator_names(capsys: pytest.CaptureFixture[str]) -> None:
    allowed = Endpoints(read_allowed(["PACS.local", "10.0.0.8:8443", "[fd00::8]:80"]))
    for address in ("http://pacs.local/x", "https://PACS.local:8443/", "https://10.0.0.8:8443/", "http://[fd00::8]/"):
        allowed.check(address)
    for address in ("https://10.0.0.8/", "http://[fd00::8]:81/", "https://10.0.0.9/", "http://pacs.local.example.org/"):
        with pytest.raises(EndpointError):
            allowed.check(address)
    for text in ("http://pacs.local", "pacs.local:0", "pacs.local:70000", "a b", "", "pacs.local/x", "fd00::8"):
        assert main(["registry", "serve", "--port", "0", "--allow-endpoint", text]) == 2
        assert "HOST or HOST:PORT" in capsys.readouterr().err


def test_a_name_is_checked_where_it_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A public name with a private address (DNS rebinding) is not reached, and the address checked is the one used."""

    def resolved(*words: Any, **more: Any) -> list[Any]:
        return [(2, 1, 6, "", ("93.184.216.34", 443)), (2, 1, 6, "", ("10.0.0.8", 443))]

    monkeypatch.setattr("socket.getaddrinfo", resolved)
    with pytest.raises(EndpointError, match=r"10\.0\.0\.8, which is not public"):
        Endpoints().post("https://example.org/", b"{}", {}, 1.0)


@pytest.mark.parametrize("secured", [False, True])
def test_a_receiver_that_drips_is_given_up(secured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket
    import ssl
    import threading
    import time

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if secured:
        ours = Authority.make("authority")
        (tmp_path / "authority.pem").write_bytes(ours.certificate.public_bytes(Encoding.PEM))
        use = ExtendedKeyUsageOID.SERVER_AUTH
        context.load_cert_chain(ours.issue(tmp_path, "server", ec.generate_private_key(ec.SECP256R1()), use))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sent = 0

        def drip() -> None:
            nonlocal sent
            plain, _ = listener.accept()
            with context.wrap_socket(plain, server_side=True) if secured else plain as held:
                try:
                    for byte in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 90:
                        held.sendall(bytes([byte]))
                        sent += 1
                        time.sleep(0.05)
                except OSError:
                    return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        begin = time.monotonic()
        with pytest.raises(EndpointError):
            scheme = "https" if secured else "http"
            Endpoints(frozenset({address})).post(f"{scheme}://{address}/", b"{}", {}, 0.5)
        assert sent and time.monotonic() - begin < 10
        thread.join(timeout=10)
