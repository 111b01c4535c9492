"""The benchmark of the registry measures what it says: every request answered, every access in the trail."""

from __future__ import annotations

import pytest

from benchmarks.registry import SEARCHES, run
from benchmarks.registry_load import percentile


def test_percentiles() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 3.0
    assert percentile([float(n) for n in range(100)], 99) == 99.0
    assert percentile([], 99) == 0.0


@pytest.mark.slow
def test_a_short_run() -> None:
    said: list[str] = []
    report = run(200, 1.0, 4, [], None, "", said.append)
    assert [row["phase"] for row in report["phases"]] == ["read", "identifier", "create"]
    for row in report["phases"]:
        assert row["errors"] == 0 and row["per_second"] > 0 and row["cpu_us_per_request"] > 0
    assert {row["search"] for row in report["searches"]} == set(SEARCHES)
    assert all(row["errors"] == 0 for row in report["searches"])
    assert report["audit_events"] >= sum(row["requests"] for row in report["phases"])
