"""Recertifies a home of small builds, first as they are, then with a compiler that changes one byte of every engine.

    python -m benchmarks.recertify [--builds 20]

The first run is the one the monthly schedule asks for, started by a tick of it. Prints one JSON object: what each run
found, with its seconds. It fails unless all builds pass in the first and all differ in the second.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.surveil import build_all, small_model
from compiler_kernels.toolchain.zig import zig_executable

# Changes a byte in the middle of the file the linker writes: no engine is smaller, and none has padding there.
WRAPPER = """#!{python} -IS
import subprocess, sys
code = subprocess.call([{zig!r}, *sys.argv[1:]])
if code == 0 and sys.argv[-2:] == ["-o", "engine"]:
    with open("engine", "r+b") as stream:
        stream.seek(40000)
        byte = stream.read(1)[0] ^ 1
        stream.seek(40000)
        stream.write(bytes([byte]))
sys.exit(code)
"""


def scheduled() -> dict[str, object]:
    """The job of the monthly schedule, by a tick of it, on the instance of this home."""
    import dagster as dg

    from cuvil_assets.automation import RECERTIFY_SCHEDULE, recertify_job
    from cuvil_assets.builder import open_instance
    from cuvil_assets.home import current_home

    with open_instance(current_home()) as instance:
        (request,) = RECERTIFY_SCHEDULE.evaluate_tick(dg.build_schedule_context(instance=instance)).run_requests or []
        recertify_job.execute_in_process(instance=instance, tags=dict(request.tags), raise_on_error=False)
    report: dict[str, object] = json.loads((current_home().root / "recertification" / "latest.json").read_bytes())
    return report


def wrapped(folder: Path) -> dict[str, object]:
    """``cuvil recertify`` with the changed compiler."""
    package = folder / "plant" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "zig").write_text(WRAPPER.format(python=sys.executable, zig=str(zig_executable())))
    (package / "zig").chmod(0o755)
    path = os.pathsep.join([str(folder / "plant"), str(Path.cwd())])
    words = [sys.executable, "-m", "cuvil_assets.cli", "recertify", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    report: dict[str, object] = json.loads(done.stdout)
    return report


def main() -> int:
    """Exit code 0 when both runs found what they must."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cuvil-recertify-") as name:
        folder = Path(name)
        os.environ["CUVIL_HOME"] = str(folder / "home")
        build_all(folder, small_model(folder), options.builds, 0)
        said = {}
        for title, made in (("as built", scheduled), ("one byte changed", lambda: wrapped(folder))):
            began = time.perf_counter()
            report = made()
            counts = {key: report[key] for key in ("passed", "failed", "due")}
            said[title] = {**counts, "wall_seconds": round(time.perf_counter() - began, 1)}
        records = len([*(folder / "home" / "nonconformities").glob("NC-*.json")])
        print(json.dumps({"builds": options.builds, **said, "nonconformity_records": records}, indent=1))
    right = said["as built"]["passed"] == said["one byte changed"]["failed"] == records == options.builds
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
