"""What a record of an inference costs beside the inference (docs/sessions.md), on one thread.

    python -m benchmarks.hooks [--network resnet18] [--rounds 25] [--json]

The engine of a network of the zoo is linked with a small program that computes inferences in turns: alone, and with a
record. Printed are medians in microseconds, and the share by which the record makes an inference longer: in wall time,
where the digests of the inputs hide behind the inference when a second processor is free, and in processor time, where
nothing hides. ``synced`` is the wall time with fsync, which is the disk's. The program ends with an error when a bit of
the outputs differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.zoo import ZOO, onnx_bytes
from compiler_kernels.compile import freeze_model, native_target
from compiler_kernels.policy import load_policy
from compiler_kernels.stages.backend import guards_of, lower_to_l2, sessions_of
from compiler_kernels.targets.c.program import COMPILED_FILES, Identity, generate
from compiler_kernels.targets.isa import VARIANTS
from compiler_kernels.toolchain.sources import runtime_sources
from compiler_kernels.toolchain.zig import ZigDriver

_POLICY: Final = """version: 1
model: {{name: bench, version: "1"}}
audit: {{sessions: {{sync: {sync}}}}}
"""
_MAIN: Final = r"""
#include "cuvil_runtime.h"
#include "cuvil_session.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const cuvil_session_hooks cuvil_sessions;
static const cuvil_engine *const engine = &cuvil_engine_instance;
static unsigned char first[1 << 22];

static double clock_us(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

typedef struct { double wall, cpu; } times;

static times now(void) {
    return (times){clock_us(CLOCK_MONOTONIC), clock_us(CLOCK_PROCESS_CPUTIME_ID)};
}

/* DIR ROUNDS [ISA]: a round is wall and CPU microseconds of an inference, of one with a record, and of the digests. */
int main(int count, char **arguments) {
    const cuvil_session_options options = {.folder = arguments[1]};
    char hex[129];
    cuvil_require_cpu();
    cuvil_start(engine, 1, count > 3 ? arguments[3] : NULL);
    cuvil_sessions.open(&options);
    for (int i = 0; i < engine->input_count; i++)
        for (long n = 0; engine->inputs[i].dtype == CUVIL_FLOAT32 && n < engine->inputs[i].count; n++)
            ((float *)engine->input_buffers[i])[n] = (float)(n * 2654435761u % 1000) / 1000.0f;
    size_t size = (size_t)engine->outputs[0].count * cuvil_type_of(&engine->outputs[0])->size;
    if (size > sizeof first) size = sizeof first;
    cuvil_infer();
    memcpy(first, engine->output_buffers[0], size);
    for (int round = -1; round < atoi(arguments[2]); round++) {
        const times t0 = now();
        cuvil_infer();
        const times t1 = now();
        cuvil_sessions.begin();
        cuvil_infer();
        cuvil_sessions.append(NULL, CUVIL_NO_FAILURE, 1);
        const times t2 = now();
        for (int i = 0; i < engine->input_count; i++)
            cuvil_tensor_digest(&engine->inputs[i], engine->input_buffers[i], NULL, hex);
        const times t3 = now();
        if (memcmp(first, engine->output_buffers[0], size)) return 5;
        if (round >= 0)
            cuvil_putf("%.2f %.2f %.2f %.2f %.2f\n", t1.wall - t0.wall, t1.cpu - t0.cpu, t2.wall - t1.wall,
                       t2.cpu - t1.cpu, t3.cpu - t2.cpu);
    }
    cuvil_flush();
    return 0;
}
"""


def build(model: bytes, sync: bool) -> bytes:
    """The measuring program with the engine of ``model``."""
    policy = load_policy(_POLICY.format(sync=str(sync).lower()).encode(), "benchmark policy")
    frozen, target = freeze_model(model, policy=policy), native_target()
    identity = Identity("bench", "1", frozen.digest, "0" * 128, target.triple)
    program = generate(
        lower_to_l2(frozen.module, frozen.store),
        frozen.store,
        identity,
        guards_of(policy),
        isas=VARIANTS[target.machine],
        sessions=sessions_of(policy),
    )
    sources = {**runtime_sources(), **{name: program.files[name] for name in COMPILED_FILES}}
    del sources["cuvil_main.c"]
    return ZigDriver().build({**sources, "main.c": _MAIN.encode()}, target).data


def measure(program: bytes, rounds: int, isa: str) -> list[list[float]]:
    """Microseconds, one row a round: see the program."""
    with tempfile.TemporaryDirectory(prefix="cuvil-hooks-") as folder:
        path = Path(folder) / "program"
        path.write_bytes(program)
        path.chmod(0o755)
        words = [str(path), f"{folder}/session", str(rounds), isa]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the program ended with {done.returncode}: {done.stderr.strip() or 'the bits changed'}")
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def report(network: str, rounds: int) -> dict[str, Any]:
    """Medians in microseconds and shares of the inference, for every instruction set of this machine."""
    model = onnx_bytes(ZOO[network])
    programs = {sync: build(model, sync) for sync in (False, True)}
    rows = []
    for isa in VARIANTS[native_target().machine]:
        try:
            plain, synced = (measure(programs[sync], rounds, isa.name) for sync in (False, True))
        except SystemExit as error:
            rows.append({"isa": isa.name, "not_executed": str(error)})
            continue
        wall, cpu, recorded_wall, recorded_cpu, digest = (median(column) for column in zip(*plain, strict=True))
        rows.append(
            {
                "isa": isa.name,
                "inference_us": {"wall": wall, "cpu": cpu},
                "with_record_us": {"wall": recorded_wall, "cpu": recorded_cpu},
                "share": {
                    "wall": median((row[2] - row[0]) / row[0] for row in plain),
                    "cpu": median((row[3] - row[1]) / row[1] for row in plain),
                },
                "input_digest_cpu_us": digest,
                "synced_wall_us": median(row[2] - row[0] for row in synced),
            }
        )
    return {"network": network, "rounds": rounds, "rows": rows}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hooks", description="What a record of an inference costs."
    )
    parser.add_argument("--network", default="resnet18", choices=sorted(ZOO))
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = report(options.network, options.rounds)
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    for row in found["rows"]:
        if "not_executed" in row:
            print(f"{row['isa']:8} not executed: {row['not_executed']}")
            continue
        print(
            f"{row['isa']:8} inference {row['inference_us']['wall']:.0f} us; a record makes it "
            f"{100 * row['share']['wall']:.2f} % longer in wall time, {100 * row['share']['cpu']:.2f} % in processor "
            f"time (input digest {row['input_digest_cpu_us']:.0f} us); synced: {row['synced_wall_us']:.0f} us"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
