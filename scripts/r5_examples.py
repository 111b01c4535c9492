"""The validator on the official FHIR R5 examples: ``python scripts/r5_examples.py [--all]``.

Fetches hl7.fhir.r5.examples 5.0.0 with npm into ``--cache`` (default: ``r5-examples`` below the folder for temporary
files) and validates every example of the types this server holds and the 300 others, taken from all types in turn, that
``tests/registry/r5_examples.txt`` names; with ``--all`` every example (minutes). Examples are expected to be valid:
exit code 1 when one is refused, unless ``tests/registry/r5_examples_wrong.json`` says with a reason that it is wrong
itself. 2 when the package cannot be had.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from fhir_registry.json_text import read_json  # noqa: E402
from fhir_registry.search.parameters import SERVED  # noqa: E402
from fhir_registry.validation import walk  # noqa: E402
from fhir_registry.validation.issues import ERROR  # noqa: E402

PACKAGE, VERSION = "hl7.fhir.r5.examples", "5.0.0"
SAMPLE = ROOT / "tests" / "registry" / "r5_examples.txt"
WRONG = ROOT / "tests" / "registry" / "r5_examples_wrong.json"


def main() -> int:
    reader = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    reader.add_argument("--all", action="store_true", help="every example of the package")
    reader.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "r5-examples")
    words = reader.parse_args()
    try:
        folder = fetch(words.cache)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"the package cannot be had: {error}", file=sys.stderr)
        return 2
    walk.MOST_SECONDS = float("inf")  # type: ignore[misc]  # one example has 42 MB, which no server is sent
    sample = frozenset(SAMPLE.read_text().split())
    chosen = [p for p in examples(folder) if words.all or p.name in sample or p.name.split("-")[0] in SERVED]
    wrong = json.loads(WRONG.read_text())
    seen: Counter[str] = Counter()
    alarms = 0
    for number, path in enumerate(chosen, 1):
        if number % 200 == 0:
            print(f"{number} of {len(chosen)}", file=sys.stderr)
        for issue in walk.validate(read_json(path.read_bytes())):
            if issue.severity != ERROR:
                continue
            known = next((w for w in wrong if applies(w, path.name, issue.expression, issue.text)), None)
            if known is not None:
                seen[known["why"]] += 1
                continue
            alarms += 1
            print(f"{path.name}: {issue.expression}: {issue.text}")
    print(
        f"{len(chosen)} examples, {alarms} false alarms, {sum(seen.values())} issues that are errors of the examples:"
    )
    for why, count in sorted(seen.items()):
        print(f"  {count:5} {why}")
    return 1 if alarms else 0


def fetch(cache: Path, package: str = PACKAGE) -> Path:
    """The folder of the unpacked package, fetched once."""
    folder = cache / f"{package}-{VERSION}"
    if not (folder / "package").is_dir():
        if shutil.which("npm") is None:
            raise FileNotFoundError("npm is not on the PATH")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", f"{package}@{VERSION}"], cwd=folder, check=True)
        with tarfile.open(folder / f"{package}-{VERSION}.tgz") as archive:
            archive.extractall(folder, filter="data")
    return folder / "package"


def examples(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.glob("*-*.json")) if not p.name.startswith((".", "package"))]


def applies(known: dict[str, str], name: str, expression: str, text: str) -> bool:
    return (
        fnmatch.fnmatchcase(name, known["name"])
        and fnmatch.fnmatchcase(expression, known.get("expression", "*"))
        and known["text"] in text
    )


if __name__ == "__main__":
    sys.exit(main())
