"""Where Cuvil keeps things: everything lies under one directory, $CUVIL_HOME (default ~/.cuvil)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.toolchain.zig import cuvil_home


@dataclass(frozen=True)
class Home:
    """The folders of one home; none of them need exist."""

    root: Path

    @property
    def store(self) -> Path:
        """Content store and action cache."""
        return self.root / "store"

    @property
    def requests(self) -> Path:
        """The build asked for last, by partition."""
        return self.root / "requests"

    @property
    def builds(self) -> Path:
        """Stage results by build."""
        return self.root / "builds"

    @property
    def dagster(self) -> Path:
        """DAGSTER_HOME of the instance the command line and the user interface share."""
        return self.root / "dagster"

    @property
    def datasets(self) -> Path:
        """Manifests of data sets by SHA-256, waivers by the report they are about, reports on test sets by engine."""
        return self.root / "datasets"

    @property
    def log(self) -> Path:
        """Tracebacks of internal errors."""
        return self.root / "log"

    def ensure(self, folder: Path) -> Path:
        """Make ``folder`` of this home; ``UsageError`` when that is impossible."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{folder}: cannot be made ({error.strerror}); set CUVIL_HOME to a writable directory"
            ) from error
        return folder


def current_home() -> Home:
    """The home named by $CUVIL_HOME."""
    return Home(cuvil_home())
