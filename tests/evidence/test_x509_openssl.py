"""Chains across implementations: ours checked by ``openssl verify`` level by level, those of openssl checked by us."""

from __future__ import annotations

from pathlib import Path

import pytest
from x509_case import ALGORITHMS, DISTID, Chain, make, openssl

from evidence.verifier.crl import read_crl
from evidence.verifier.der import decode_pem, encode_pem
from evidence.verifier.errors import CertificateFailure
from evidence.verifier.signing import P384, SM2
from evidence.verifier.x509 import CODE_SIGNING, verify_chain

CONFIG = """
[req]
distinguished_name=dn
prompt=no
[dn]
CN=unused
[root]
basicConstraints=critical,CA:TRUE,pathlen:1
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash
[issuing]
basicConstraints=critical,CA:TRUE,pathlen:0
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
[leaf]
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=codeSigning
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
[ca]
default_ca=c
[c]
database=index.txt
crlnumber=crlnumber
default_crl_days=30
crl_extensions=crlext
[crlext]
authorityKeyIdentifier=keyid
"""


def write(folder: Path, chain: Chain) -> None:
    for name in ("root", "issuing", "leaf"):
        (folder / f"{name}.pem").write_text(encode_pem("CERTIFICATE", getattr(chain, name)))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_openssl_accepts_our_chain(algorithm: str, tmp_path: Path) -> None:
    write(tmp_path, make(algorithm))
    # openssl hands the SM2 identity to the leaf of a verification only, so each level is one of its own.
    options = ["-vfyopt", DISTID] if algorithm == SM2 else []
    when = ["-attime", "1780400000"]
    low = ["verify", *options, *when, "-partial_chain", "-trusted", "issuing.pem", "leaf.pem"]
    high = ["verify", *options, *when, "-CAfile", "root.pem", "issuing.pem"]
    assert "leaf.pem: OK" in openssl(*low, cwd=tmp_path).stdout
    assert "issuing.pem: OK" in openssl(*high, cwd=tmp_path).stdout
    if algorithm == P384:
        whole = openssl("verify", *when, "-CAfile", "root.pem", "-untrusted", "issuing.pem", "leaf.pem", cwd=tmp_path)
        assert "leaf.pem: OK" in whole.stdout
    if algorithm == SM2:
        wrong = ["verify", "-vfyopt", "distid:0000000000000000", *when, "-CAfile", "root.pem", "issuing.pem"]
        assert openssl(*wrong, cwd=tmp_path, check=False).returncode != 0


def by_openssl(folder: Path, algorithm: str, *, distid: bool = True) -> Chain:
    """A chain and lists made by the openssl command line."""
    (folder / "c.cnf").write_text(CONFIG)
    (folder / "index.txt").write_text("")
    (folder / "crlnumber").write_text("01\n")
    curve, digest = ("SM2", "-sm3") if algorithm == SM2 else ("secp384r1", "-sha384")
    sign = ["-sigopt", DISTID] if algorithm == SM2 and distid else []
    check = ["-vfyopt", DISTID] if algorithm == SM2 and distid else []
    for name in ("root", "issuing", "leaf"):
        openssl("ecparam", "-name", curve, "-genkey", "-noout", "-out", f"{name}.key", cwd=folder)
        request = ["req", "-new", "-key", f"{name}.key", digest, *sign, "-subj", f"/CN={name}", "-config", "c.cnf"]
        if name == "root":
            openssl(*request, "-x509", "-days", "30", "-extensions", "root", "-out", "root.pem", cwd=folder)
            continue
        openssl(*request, "-out", f"{name}.csr", cwd=folder)
        above = "root" if name == "issuing" else "issuing"
        openssl(
            *["x509", "-req", "-in", f"{name}.csr", "-CA", f"{above}.pem", "-CAkey", f"{above}.key", "-CAcreateserial"],
            *[digest, *sign, *check, "-days", "30", "-extfile", "c.cnf", "-extensions", name, "-out", f"{name}.pem"],
            cwd=folder,
        )
    for name in ("root", "issuing"):
        files = ["-cert", f"{name}.pem", "-keyfile", f"{name}.key", "-out", f"{name}.crl"]
        md = ["-md", digest[1:]]
        openssl("ca", "-gencrl", "-config", "c.cnf", *md, *sign, *files, cwd=folder)
    der = {n: decode_pem((folder / f"{n}.pem").read_text())[1] for n in ("root", "issuing", "leaf")}
    crls = tuple(decode_pem((folder / f"{n}.crl").read_text())[1] for n in ("root", "issuing"))
    return Chain(algorithm, der["root"], der["issuing"], der["leaf"], crls)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_we_accept_a_chain_of_openssl(algorithm: str, tmp_path: Path) -> None:
    chain = by_openssl(tmp_path, algorithm)
    at = read_crl(chain.crls[0]).this_update
    assert chain.verify(at=at).algorithm == algorithm


def test_a_chain_without_the_identity_fools_openssl_and_not_us(tmp_path: Path) -> None:
    chain = by_openssl(tmp_path, SM2, distid=False)
    assert (
        "OK" in openssl("verify", "-CAfile", "root.pem", "-untrusted", "issuing.pem", "leaf.pem", cwd=tmp_path).stdout
    )
    at = read_crl(chain.crls[0]).this_update
    with pytest.raises(CertificateFailure) as caught:
        verify_chain(chain.leaf, [chain.issuing], [chain.root], chain.crls, at, CODE_SIGNING)
    assert caught.value.reason == "sm2-without-identity"
