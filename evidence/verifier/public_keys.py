"""From a public key's DER to its verifier, and the signature algorithms of certificates."""

from __future__ import annotations

from evidence.verifier.errors import UsageError
from evidence.verifier.ml_dsa import MlDsaVerifier, is_ml_dsa
from evidence.verifier.p384 import P384Verifier, is_p384
from evidence.verifier.signing import P384, SM2, Verifier
from evidence.verifier.sm2 import Sm2Verifier, is_sm2

# OIDs of SignatureAlgorithm: GM/T 0006 (SM2 with SM3), RFC 5758 (ecdsa-with-SHA384).
SIGNATURE_OIDS = {"1.2.156.10197.1.501": SM2, "1.2.840.10045.4.3.3": P384}


def verifier_of(spki: bytes) -> Verifier:
    """A verifier for a SubjectPublicKeyInfo (DER) of SM2, P-384 or ML-DSA-65; ``UsageError`` for any other key."""
    if is_sm2(spki):
        return Sm2Verifier(spki)
    if is_p384(spki):
        return P384Verifier(spki)
    if is_ml_dsa(spki):
        return MlDsaVerifier(spki)
    raise UsageError("the key is neither SM2, P-384 nor ML-DSA-65; give one of these")
