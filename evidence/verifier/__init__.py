"""Verification, offline and by itself: the standard library, asn1crypto, and the system's libcrypto through ctypes.

Nothing here imports the compiler, Dagster or any other package (tests/evidence holds it to that), so this folder also
travels as one file, ``cuvil-verify.pyz``. Signing, issuing and releasing import it; it imports none of them.
"""
