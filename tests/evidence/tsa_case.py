"""A time-stamping authority of the openssl command line, P-384 with SHA-384; its certificates are made here."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from x509_case import openssl

from evidence import p384
from evidence.certificates import Profile, issue_certificate
from evidence.p384 import P384Signer
from evidence.timestamping import request_der, token_of
from evidence.verifier.certificate import read_certificate
from evidence.verifier.der import encode_pem
from evidence.verifier.x509 import TIME_STAMPING

POLICY = "1.3.6.1.4.1.99999.1"
CONFIG = f"""
[tsa]
default_tsa=t1
[t1]
serial=serial
signer_cert=tsa.pem
signer_key=tsa.key
signer_digest=sha384
default_policy={POLICY}
other_policies=1.3.6.1.4.1.99999.2
digests=sha256,sha384,sha512
accuracy=secs:1
ordering=yes
tsa_name=yes
ess_cert_id_chain=no
ess_cert_id_alg=sha256
"""


@dataclass(frozen=True)
class Tsa:
    """The authority's folder and root; its certificate comes straight from the root."""

    folder: Path
    root: bytes
    certificate: bytes

    def respond(self, request: bytes) -> bytes:
        """DER of the response to a request."""
        (self.folder / "q").write_bytes(request)
        openssl("ts", "-reply", "-config", "t.cnf", "-queryfile", "q", "-out", "r", cwd=self.folder)
        return (self.folder / "r").read_bytes()

    def token(self, imprint: bytes) -> bytes:
        return token_of(self.respond(request_der(imprint, 1 << 62)))


def make_tsa(folder: Path, purpose: str = TIME_STAMPING, days: int = 900) -> Tsa:
    now = datetime.now(UTC)
    top, key = P384Signer(p384.generate_private_key()), p384.generate_private_key()
    low = P384Signer(key)
    root = issue_certificate(
        Profile("TSA root", now - timedelta(days=1), now + timedelta(days=900), path_length=0), top.spki, top, None
    )
    profile = Profile("TSA", now - timedelta(days=1), now + timedelta(days=days), purpose=purpose)
    certificate = issue_certificate(profile, low.spki, top, read_certificate(root))
    (folder / "t.cnf").write_text(CONFIG)
    (folder / "serial").write_text("01\n")
    (folder / "tsa.pem").write_text(encode_pem("CERTIFICATE", certificate))
    (folder / "root.pem").write_text(encode_pem("CERTIFICATE", root))
    (folder / "tsa.key").write_text(encode_pem("PRIVATE KEY", key))
    return Tsa(folder, root, certificate)


@contextmanager
def serve(answer: Callable[[bytes], tuple[int, str, bytes]]) -> Iterator[str]:
    """An HTTP server on this machine that answers every POST with ``(status, type, body)``; yields its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, kind, body = answer(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return None

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
