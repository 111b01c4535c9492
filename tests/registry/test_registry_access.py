"""Who may read and write: tokens once only, TLS, client certificates, registries that are not public."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st
from registry_client import Client

from cuvil_assets.cli import main
from evidence.keys import init_keys
from evidence.p384 import P384Signer, generate_private_key
from fhir_registry.server.access import _signed, make_token
from fhir_registry.server.serve import listen
from fhir_registry.server.tokens import RefusedTokenError, Token, read_token
from fhir_registry.server.used import UsedTokens
from tests.fuzz.registry_process import Server

ORGANISATION = {"resourceType": "Organization", "name": "O"}
Key = ec.EllipticCurvePrivateKey


def test_a_token_is_taken_once_by_all_processes_and_after_a_restart(tmp_path: Path) -> None:
    now = 1000.0
    path = tmp_path / "tokens.sqlite"
    first, second = UsedTokens(path, lambda: now), UsedTokens(path, lambda: now)

    async def take(*names: str) -> list[bool]:
        asked = [(first, second)[n % 2].take("issuer", name, 1100) for n, name in enumerate(names)]
        return list(await asyncio.gather(*asked))

    found = asyncio.run(take(*(f"token {n // 4}" for n in range(200))))
    assert [sum(found[n : n + 4]) for n in range(0, 200, 4)] == [1] * 50
    assert asyncio.run(take("another", "another")).count(True) == 1
    first.close()
    second.close()
    first = second = UsedTokens(path, lambda: now)
    assert asyncio.run(take("token 3")) == [False]
    now = 1100.0
    assert asyncio.run(take("token 3")) == [True]  # it has ended, and is refused for that
    first.close()


def test_a_token_does_not_come_back_when_the_server_does(tmp_path: Path) -> None:
    server = Server(tmp_path)
    token = server.token()

    def post() -> int:
        return Client(server.base).call("POST", "Organization", ORGANISATION, {"Authorization": f"Bearer {token}"})[0]

    assert post() == 201
    server.kill()
    server = Server(tmp_path, "--port", str(server.port))
    assert post() == 403
    server.stop()


def test_a_private_registry_is_read_by_those_it_knows(tmp_path: Path) -> None:
    server = Server(tmp_path, "--private")
    try:
        client = Client(server.base)
        assert client.call("GET", "metadata")[0] == 200
        for path in ("Organization", "Organization/x", "_history"):
            status, headers, _ = client.call("GET", path)
            assert status == 401 and "Bearer" in headers["www-authenticate"]
        assert client.call("POST", "Organization/_search", b"")[0] == 401
        assert client.raw("GET", server.base.removesuffix("/fhir") + "/")[0] == 401  # pages for people
        token = {"Authorization": f"Bearer {server.token()}"}
        assert [client.call("GET", "Organization", headers=token)[0] for _ in range(2)] == [200, 200]
        other = next(s for s in init_keys(tmp_path / "other").signers if s.algorithm == server.signer.algorithm)
        stranger = {"Authorization": f"Bearer {make_token(other, server.base)}"}
        assert client.call("GET", "Organization", headers=stranger)[0] == 403
    finally:
        assert "Traceback" not in server.stop()


@dataclass(frozen=True)
class Authority:
    key: Key
    certificate: x509.Certificate

    @classmethod
    def make(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP384R1())
        return cls(key, _certificate(name, key.public_key(), key, name, None))

    def issue(self, folder: Path, name: str, key: Key, purpose: x509.ObjectIdentifier) -> Path:
        """A file with the certificate and the key."""
        made = _certificate(name, key.public_key(), self.key, self.certificate.subject, purpose)
        path = folder / f"{name}.pem"
        path.write_bytes(
            made.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        return path


def _certificate(
    name: str,
    public: ec.EllipticCurvePublicKey,
    signer: Key,
    issuer: x509.Name | str,
    purpose: x509.ObjectIdentifier | None,
) -> x509.Certificate:
    now = datetime.now(UTC)
    named = issuer if isinstance(issuer, x509.Name) else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)])
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(named)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=purpose is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    )
    if purpose is not None:
        made = made.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    return made.sign(signer, hashes.SHA384())


@dataclass(frozen=True)
class Secured:
    server: Server
    folder: Path
    ours: Authority
    builder: Key

    def call(self, method: str, path: str, body: Any = None, shown: Path | None = None) -> tuple[int, Any]:
        context = ssl.create_default_context(cafile=str(self.folder / "authority.pem"))
        if shown is not None:
            context.load_cert_chain(shown)
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/fhir+json"} if data else {}
        request = urllib.request.Request(f"{self.server.base}/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    """A private registry with TLS, whose clients' authority is also that of the server."""
    ours = Authority.make("authority")
    (tmp_path / "authority.pem").write_bytes(ours.certificate.public_bytes(Encoding.PEM))
    shown = ours.issue(tmp_path, "server", ec.generate_private_key(ec.SECP256R1()), ExtendedKeyUsageOID.SERVER_AUTH)
    authority = str(tmp_path / "authority.pem")
    options = ("--private", "--tls-cert", str(shown), "--tls-key", str(shown), "--client-ca", authority)
    server = Server(tmp_path, *options)
    pem = next((server.home / "keys").glob("p384.key.pem")).read_bytes()
    builder = serialization.load_pem_private_key(pem, None)
    assert isinstance(builder, ec.EllipticCurvePrivateKey) and server.base.startswith("https://")
    yield Secured(server, tmp_path, ours, builder)
    assert "Traceback" not in server.stop()


def test_a_client_certificate_writes_if_its_key_is_a_builders(secured: Secured) -> None:
    client = ExtendedKeyUsageOID.CLIENT_AUTH
    builder = secured.ours.issue(secured.folder, "builder", secured.builder, client)
    hospital = secured.ours.issue(secured.folder, "hospital", ec.generate_private_key(ec.SECP384R1()), client)
    foreign = Authority.make("authority").issue(secured.folder, "foreign", secured.builder, client)
    wrong_use = secured.ours.issue(secured.folder, "wrong", secured.builder, ExtendedKeyUsageOID.SERVER_AUTH)

    status, made = secured.call("POST", "Organization", ORGANISATION, builder)
    assert status == 201
    assert secured.call("POST", "Organization", ORGANISATION, builder)[0] == 201  # as often as it likes
    status, outcome = secured.call("POST", "Organization", ORGANISATION, hospital)
    assert status == 403 and "client certificate is refused" in outcome["issue"][0]["details"]["text"]
    assert secured.call("POST", "Organization", ORGANISATION)[0] == 401
    assert secured.call("GET", f"Organization/{made['id']}", shown=hospital)[0] == 200
    assert secured.call("GET", f"Organization/{made['id']}")[0] == 401
    assert secured.call("GET", "metadata")[0] == 200
    for stranger in (foreign, wrong_use):
        with pytest.raises((OSError, ssl.SSLError)):
            secured.call("GET", "metadata", shown=stranger)
    from fhir_registry.audit.outbox import Outbox

    outbox = Outbox(secured.server.home / "registry" / "audit.sqlite")
    who = [json.loads(entry.body)["agent"][0]["who"]["display"] for entry in outbox.entries()]
    outbox.close()
    assert "CN=hospital" in who and any(name.startswith("key ") for name in who)


def test_plain_http_is_not_served_beside_tls(secured: Secured) -> None:
    with pytest.raises(OSError):
        Client(secured.server.base.replace("https", "http")).raw("GET", "metadata")


def test_files_that_are_no_certificates_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = Authority.make("authority")
    one = ours.issue(tmp_path, "one", ec.generate_private_key(ec.SECP256R1()), ExtendedKeyUsageOID.SERVER_AUTH)
    two = ours.issue(tmp_path, "two", ec.generate_private_key(ec.SECP256R1()), ExtendedKeyUsageOID.SERVER_AUTH)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        ours.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x"))
    )
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    folder = str(tmp_path / "data")

    def refused(*options: str | Path) -> str:
        assert main(["registry", "serve", "--port", "0", "--data", folder, *map(str, options)]) == 2
        said = capsys.readouterr().err
        assert "Traceback" not in said
        return said

    assert "--tls-key belong together" in refused("--tls-cert", one)
    assert "--client-ca needs them" in refused("--client-ca", one)
    assert "none.pem" in refused("--tls-cert", tmp_path / "none.pem", "--tls-key", one)
    assert "two.pem" in refused("--tls-cert", one, "--tls-key", two)
    assert "locked.pem" in refused("--tls-cert", one, "--tls-key", locked)
    assert "empty.pem" in refused("--tls-cert", empty, "--tls-key", empty)
    assert "empty.pem" in refused("--tls-cert", one, "--tls-key", one, "--client-ca", empty)


def test_the_command_makes_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path)
    monkeypatch.setenv("CUVIL_HOME", str(server.home))
    try:
        assert main(["registry", "token", server.base]) == 0
        made = capsys.readouterr().out.strip()
        headers = {"Authorization": f"Bearer {made}"}
        assert Client(server.base).call("POST", "Organization", ORGANISATION, headers)[0] == 201
    finally:
        server.stop()
    assert main(["registry", "token", server.base, "--seconds", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] == 7
    for wrong in ([server.base + "/"], ["registry"], [server.base, "--seconds", "301"], [server.base, "--key", "none"]):
        assert main(["registry", "token", *wrong]) == 2
        assert "Traceback" not in capsys.readouterr().err


SIGNER = P384Signer(generate_private_key())
TOKEN = make_token(SIGNER, "http://x/fhir")


@given(st.integers(0, len(TOKEN) - 1), st.sampled_from("ABCxyz012-_.=é\0"))
def test_no_changed_token_holds(at: int, put: str) -> None:
    changed = TOKEN[:at] + put + TOKEN[at + 1 :]
    try:
        token = read_token(changed)
    except RefusedTokenError:
        return
    assert _signed(SIGNER.spki, token.message, token.signature) == (changed == TOKEN)


def test_a_server_listens_on_ipv6() -> None:
    try:
        listener = listen("::1", 0)
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 ({error.strerror})")
    with listener:
        assert listener.getsockname()[1]


def test_a_warning_where_others_could_read_tokens(tmp_path: Path) -> None:
    assert "tokens travel unencrypted" in Server(tmp_path / "all", "--host", "0.0.0.0").stop()
    assert "unencrypted" not in Server(tmp_path / "own").stop()


def test_a_token_does_not_hold_before_its_time() -> None:
    """RFC 7519 section 4.1.5: what is signed for later is not taken now."""
    claims = {"iat": 1000, "exp": 1300, "aud": "https://a/fhir"}
    assert Token(claims, b"", b"").ends(1010, "https://a/fhir") == 1300
    later = Token({**claims, "nbf": 1200}, b"", b"")
    assert later.ends(1200, "https://a/fhir") == 1300
    for wrong in (later, Token({**claims, "nbf": "soon"}, b"", b"")):
        with pytest.raises(RefusedTokenError, match="does not hold yet"):
            wrong.ends(1010, "https://a/fhir")
