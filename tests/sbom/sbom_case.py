"""What the tests of the bill of materials share (a module of its own: several folders have a ``conftest``)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cuvil_assets.store import ContentStore
from evidence.sbom.make import Bill, make_sbom
from evidence.verifier.statement import Statement

SOUP = "{requirements: r, environment: Linux 4.14 or another, safety_class: C, anomaly_list: none relevant, "
POLICY = f"""\
version: 1
model: {{name: tiny, version: "1.0", purpose: Shows that a bill is complete.}}
inputs:
  image: {{shape: [1, 1, 8, 8], finite: true, range: [0.0, 1.0]}}
sbom:
  manufacturer: Example Medical
  task: classification
  datasets:
    - {{name: tiny set, sha256: "{"ab" * 32}", use: training, description: random numbers}}
  end_of_support: {{musl: "2031-01-01", zig-libc: "2030-06-30"}}
  soup:
    musl: {SOUP}reviewed: "2026-11-01"}}
    zig-libc: {SOUP}reviewed: "2026-11-01"}}
    compiler-rt: {SOUP}reviewed: "2026-11-01"}}
source_date_epoch: 1700000000
"""


@dataclass
class Built:
    home: Path
    engine: Path
    statement: Statement
    store: ContentStore

    @cached_property
    def bill(self) -> Bill:
        return make_sbom(self.statement, self.store.find)
