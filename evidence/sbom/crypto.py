"""The cryptographic algorithms of an engine and its evidence, as CycloneDX cryptographic assets (CBOM).

Object identifiers: SM2-with-SM3 and SM3 by GM/T 0006, the others by NIST's CSOR and ANSI X9.62 / RFC 5758.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evidence.sbom.parts import CRYPTO, Part

Json = Any
# name, description, oid, algorithm properties; the last word of a property list is a claim of CycloneDX's own scale
_ALGORITHMS: dict[str, tuple[str, str, str, dict[str, Json]]] = {
    "sm2-sm3": (
        "SM2 with SM3",
        "Signature of proofs (GB/T 32918); by the system's libcrypto.",
        "1.2.156.10197.1.501",
        {"primitive": "signature", "curve": "sm2p256v1", "cryptoFunctions": ["sign", "verify"]},
    ),
    "sm3": (
        "SM3",
        "Digest inside SM2 signatures and of every artefact (GB/T 32905).",
        "1.2.156.10197.1.401",
        {"primitive": "hash", "parameterSetIdentifier": "256", "cryptoFunctions": ["digest"]},
    ),
    "ecdsa-p384-sha384": (
        "ECDSA P-384 with SHA-384",
        "Signature of proofs (FIPS 186-5); by the system's libcrypto.",
        "1.2.840.10045.4.3.3",
        {"primitive": "signature", "curve": "P-384", "cryptoFunctions": ["sign", "verify"]},
    ),
    "sha-384": (
        "SHA-384",
        "Digest inside P-384 signatures (FIPS 180-4).",
        "2.16.840.1.101.3.4.2.2",
        {"primitive": "hash", "parameterSetIdentifier": "384", "cryptoFunctions": ["digest"]},
    ),
    "sha-256": (
        "SHA-256",
        "Digest of every artefact (FIPS 180-4).",
        "2.16.840.1.101.3.4.2.1",
        {"primitive": "hash", "parameterSetIdentifier": "256", "cryptoFunctions": ["digest"]},
    ),
    "sha3-512": (
        "SHA3-512",
        "Digest of every artefact and of the chain of records; the engine checks itself with it (FIPS 202).",
        "2.16.840.1.101.3.4.2.10",
        {"primitive": "hash", "parameterSetIdentifier": "512", "cryptoFunctions": ["digest"]},
    ),
    "shake256": (
        "SHAKE256",
        "Digest of pieces of inputs and outputs in the engine's records of inferences (FIPS 202).",
        "2.16.840.1.101.3.4.2.12",
        {"primitive": "xof", "parameterSetIdentifier": "256", "cryptoFunctions": ["digest"]},
    ),
    "ml-dsa-65": (
        "ML-DSA-65",
        "Further signature of proofs (FIPS 204).",
        "2.16.840.1.101.3.4.3.18",
        {"primitive": "signature", "parameterSetIdentifier": "65", "cryptoFunctions": ["sign", "verify"]},
    ),
}
_USES = {"sm2-sm3": ("sm3",), "ecdsa-p384-sha384": ("sha-384",)}
ALWAYS = ("sm2-sm3", "ecdsa-p384-sha384", "sha-256", "sha3-512")


def crypto_parts(further: Iterable[str] = ()) -> list[Part]:
    """The algorithms of every build, and further ones by name (``ml-dsa-65``, ``shake256``)."""
    names = dict.fromkeys([*ALWAYS, *(name for name in further if name in _ALGORITHMS)])
    names.update(dict.fromkeys(other for name in list(names) for other in _USES.get(name, ())))
    return [
        Part(
            ref=f"crypto:{name}",
            kind="cryptographic-asset",
            name=_ALGORITHMS[name][0],
            group=CRYPTO,
            description=_ALGORITHMS[name][1],
            needs=tuple(f"crypto:{other}" for other in _USES.get(name, ())),
        )
        for name in sorted(names)
    ]


def crypto_properties(ref: str) -> dict[str, Json]:
    """``cryptoProperties`` of the asset ``ref``."""
    _, _, oid, properties = _ALGORITHMS[ref.removeprefix("crypto:")]
    return {"assetType": "algorithm", "algorithmProperties": dict(properties), "oid": oid}
