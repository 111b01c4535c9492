"""Time to sign, and to verify, many in-toto statements with SM2 and ECDSA P-384.

``python -m benchmarks.signing [--statements 1000] [--rounds 5]`` prints one JSON object: the median over the rounds of
CPU and wall seconds for all statements, each signed with both keys (every signature is verified before it is returned).
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time

from evidence import p384, sm2
from evidence.p384 import P384Signer
from evidence.sm2 import Sm2Signer
from evidence.verifier.canonical import canonical_bytes
from evidence.verifier.dsse import sign
from evidence.verifier.public_keys import verifier_of
from evidence.verifier.sm2 import load

LIMIT_SECONDS = 5.0
"""What 1,000 statements may take."""


def measure(statements: int, rounds: int) -> dict[str, object]:
    """Medians in seconds for ``statements`` statements of about 600 bytes, over ``rounds`` rounds."""
    signers = [Sm2Signer(sm2.generate_private_key()), P384Signer(p384.generate_private_key())]
    verifiers = [verifier_of(signer.spki) for signer in signers]
    payloads = [canonical_bytes({"number": index, "text": "x" * 560}) for index in range(statements)]
    found: dict[str, list[float]] = {"sign_cpu_s": [], "sign_wall_s": [], "verify_cpu_s": []}
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        envelopes = [sign(payload, signers) for payload in payloads]
        found["sign_cpu_s"].append(time.process_time() - cpu)
        found["sign_wall_s"].append(time.perf_counter() - wall)
        cpu = time.process_time()
        for envelope in envelopes:
            for verifier, item in zip(verifiers, envelope.signatures, strict=True):
                assert verifier.verify(envelope.signed_bytes, item.value)
        found["verify_cpu_s"].append(time.process_time() - cpu)
    medians = {name: round(statistics.median(values), 3) for name, values in found.items()}
    return {
        "statements": statements,
        "rounds": rounds,
        "machine": platform.machine(),
        "libcrypto": load().version,
        **medians,
        "within_limit": statements > 1000 or medians["sign_cpu_s"] < LIMIT_SECONDS,
    }


def main() -> None:
    """Parse the arguments and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statements", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.statements, arguments.rounds), indent=2))


if __name__ == "__main__":
    main()
