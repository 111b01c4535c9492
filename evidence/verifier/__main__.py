"""``python cuvil-verify.pyz RELEASE --trust-root FILE``: the verifier by itself, from its zip or this folder.

Prints the checks, or one JSON object with ``--json``. Exit codes: 0 verified; 1 a check failed; 2 something cannot be
read; 4 this machine has no SM2.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from evidence.verifier.errors import VerifierError
from evidence.verifier.release import is_release, verify_release
from evidence.verifier.report import VerifyReport
from evidence.verifier.verify import verify_engine


def main(arguments: list[str] | None = None) -> int:
    """Verify what the arguments name; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="cuvil-verify", description="Check a release folder, a bundle, or an engine with its proof, offline."
    )
    parser.add_argument("path", type=Path, help="release folder, bundle (zip) or engine")
    parser.add_argument("--trust-root", type=Path, required=True, help="whom to trust; never taken from the release")
    parser.add_argument("--this-device", action="store_true", help="require the deployment of this very machine")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args(arguments)
    try:
        report = verify(options.path, options.trust_root, options.this_device)
    except VerifierError as error:
        if options.json:
            print(json.dumps({**error.details(), "exit_code": error.exit_code}, indent=2))
        else:
            print(f"cuvil-verify: {error}", file=sys.stderr)
        return error.exit_code
    if options.json:
        print(json.dumps(report.to_json(), indent=2, ensure_ascii=False))
    else:
        for item in report.checks:
            print(f"{item.status:12} {item.name:24} {item.sentence}")
        print(f"{options.path}: {'verified' if report.ok else 'NOT verified'}")
    return 0 if report.ok else 1


def verify(path: Path, trust_root: Path, this_device: bool) -> VerifyReport:
    """Verify an engine or a release, whichever ``path`` is."""
    if is_release(path):
        return verify_release(path, trust_root, this_device=this_device)
    return verify_engine(path, None, trust_root)


if __name__ == "__main__":
    sys.exit(main())
