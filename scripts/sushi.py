"""Compile the registry's definitions with SUSHI: ``python scripts/sushi.py --check`` or ``--write``.

Source is ``fhir_registry/fsh``; what SUSHI makes of it lies beside it in ``fsh-generated``, is committed, and is what
the registry serves. ``--check`` compares (exit code 1 where they differ), ``--write`` replaces. Needs Node 18 or later
with npm, and npm's registry: fsh-sushi and two packages of HL7 go to ``--cache`` (default: ``sushi`` below the folder
for temporary files), nothing into the home.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SUSHI = "3.21.0"
PACKAGES = {"hl7.fhir.r5.core": "5.0.0", "hl7.fhir.uv.extensions.r5": "5.3.0-ballot-tc1"}
SOURCE = Path(__file__).parents[1] / "fhir_registry" / "fsh"


def main() -> int:
    reader = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    mode = reader.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true", help="compare with what is committed")
    mode.add_argument("--write", action="store_true", help="replace what is committed")
    reader.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "sushi")
    words = reader.parse_args()
    if shutil.which("npm") is None:
        print("npm is not on the PATH; install Node 18 or later", file=sys.stderr)
        return 2
    fetch(words.cache)
    with tempfile.TemporaryDirectory(prefix="sushi-") as folder:
        made = compile_fsh(words.cache, Path(folder))
        kept = SOURCE / "fsh-generated" / "resources"
        if words.write:
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(made, kept)
            print(f"{len(list(kept.glob('*.json')))} definitions written")
            return 0
        return compare(made, kept)


def fetch(cache: Path) -> None:
    """SUSHI and the packages it reads, once. ``npm pack``: one of them names a dependency that npm does not have."""
    cache.mkdir(parents=True, exist_ok=True)
    for name, version in PACKAGES.items():
        folder = cache / ".fhir" / "packages" / f"{name}#{version}"
        if not (folder / "package").is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(["npm", "pack", "--silent", f"{name}@{version}"], cwd=folder, check=True)
            with tarfile.open(folder / f"{name}-{version}.tgz") as archive:
                archive.extractall(folder, filter="data")
    if not (cache / "node_modules" / "fsh-sushi").is_dir():
        subprocess.run(["npm", "install", "--silent", "--prefix", cache, f"fsh-sushi@{SUSHI}"], check=True)


def compile_fsh(cache: Path, folder: Path) -> Path:
    """The folder of resources that SUSHI made; ends the program where it found an error."""
    command = ["node", cache / "node_modules" / "fsh-sushi" / "dist" / "app.js", "build", SOURCE, "-o", folder]
    done = subprocess.run(command, env={**os.environ, "HOME": str(cache)}, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if line.startswith("error")]
    if done.returncode or errors:
        raise SystemExit("\n".join(["SUSHI found errors:", *errors, done.stderr]))
    return folder / "fsh-generated" / "resources"


def compare(made: Path, kept: Path) -> int:
    names = sorted({p.name for p in made.glob("*.json")} | {p.name for p in kept.glob("*.json")})
    different = [name for name in names if _bytes(made / name) != _bytes(kept / name)]
    for name in different:
        print(f"{name} is not what SUSHI makes of the source; run `make sushi`", file=sys.stderr)
    print(f"{len(names)} definitions compared, {len(different)} differ")
    return 1 if different else 0


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


if __name__ == "__main__":
    sys.exit(main())
