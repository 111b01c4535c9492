"""The files that lie beside an engine once it is built, by their names."""

from __future__ import annotations

from pathlib import Path

from evidence.verifier.build import proof_name
from evidence.verifier.canonical import MalformedError, expect_map, strict_json
from evidence.verifier.errors import UsageError
from evidence.verifier.files import read_small
from evidence.verifier.rebuilds import REBUILD_MARK

# Reports of a build by part name; the suffix follows the engine's stem.
REPORT_SUFFIXES = {
    "equivalence": ".equivalence.json",
    "coverage": ".coverage.json",
    "reproducibility": ".reproducibility.json",
    "sbom": ".cdx.json",
    "dataset": ".dataset.json",
    "decisions": ".decisions.json",
}
REPRODUCE_LOG, REPRODUCE_SIGNED = ".reproducibility.log", ".reproducibility.intoto.json"
COVERAGE_PAGE, COVERAGE_VECTORS = ".coverage.html", ".coverage.vectors.gz"
DECISIONS_SIGNED = ".decisions.intoto.json"
ATTACHED_SUFFIXES = (REPRODUCE_LOG, REPRODUCE_SIGNED, DECISIONS_SIGNED, COVERAGE_PAGE, COVERAGE_VECTORS)


def stem_of(engine_name: str) -> str:
    """What the names of the files beside an engine begin with."""
    return proof_name(engine_name).removesuffix(".proof.json")


class Delivered:
    """What lies beside ``engine``; nothing is read before it is asked for."""

    def __init__(self, engine: Path) -> None:
        if not engine.is_file():
            raise UsageError(f"{engine}: no such engine; give the engine file that `cuvil build` wrote")
        self.engine = engine
        self.proof_name = proof_name(engine.name)
        self.stem = stem_of(engine.name)

    def proof(self) -> bytes:
        """Bytes of the build proof."""
        return read_small(self.engine.with_name(self.proof_name), "proof", "build the engine again")

    def report_names(self) -> dict[str, str]:
        """The reports that are there, by part name."""
        names = {part: self.stem + suffix for part, suffix in REPORT_SUFFIXES.items()}
        return {part: name for part, name in names.items() if self.engine.with_name(name).is_file()}

    def attached_names(self) -> list[str]:
        """Files that go with a report: log of the rebuilds, signed results, page and vectors of the coverage."""
        names = [self.stem + suffix for suffix in ATTACHED_SUFFIXES]
        return [name for name in names if self.engine.with_name(name).is_file()]

    def approval_names(self) -> list[str]:
        """The approvals that are there."""
        return sorted(path.name for path in self.engine.parent.glob(f"{self.stem}.approval-*.json"))

    def rebuild_names(self) -> list[str]:
        """The attestations of rebuilders that are there."""
        return sorted(path.name for path in self.engine.parent.glob(f"{self.stem}{REBUILD_MARK}*.json"))

    def licences(self) -> dict[str, bytes]:
        """Licence texts beside the engine (``licences/*.txt``, which `cuvil sbom` writes), by relative name."""
        paths = sorted((self.engine.parent / "licences").glob("*.txt"))
        return {f"licences/{path.name}": read_small(path, "licence text", "make the SBOM again") for path in paths}

    def read(self, name: str) -> bytes:
        """Bytes of a file beside the engine."""
        return read_small(self.engine.with_name(name), "file", "restore it, or build again")

    def verdict(self, part: str, name: str) -> str:
        """What a report says of itself: its ``verdict``; an SBOM and a report without one are ``stated``."""
        try:
            document = expect_map(strict_json(self.read(name)), name)
        except MalformedError as error:
            raise UsageError(f"{self.engine.with_name(name)}: {error}; make it again") from None
        verdict = document.get("verdict")
        return verdict if isinstance(verdict, str) and verdict and part != "sbom" else "stated"
