"""What a probe of the clinical logic costs, by itself and beside an inference (docs/coverage.md), on one thread.

    python -m benchmarks.probes [--network resnet18] [--rounds 15] [--json]

The engine of a network of the zoo is compiled with a policy of twelve conditions, with probes and without, and linked
with a small program. It times batches of 8,000 probes into a ring that is emptied between them, and as many calls of an
empty function (least of 400 batches, processor time); the clinical logic of one inference; and inferences. ``share`` is
what probes add to the clinical logic, over the inference without them. The program ends with an error when the numbers
that are decided on differ.
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
from compiler_kernels.policy.logic import tensors_of
from compiler_kernels.stages.backend import clinical_of, guards_of, lower_to_l2
from compiler_kernels.targets.c.program import COMPILED_FILES, Identity, generate
from compiler_kernels.targets.isa import VARIANTS
from compiler_kernels.toolchain.sources import runtime_sources
from compiler_kernels.toolchain.zig import ZigDriver

_MAIN: Final = r"""
#define CUVIL_PROBES 1
#include "cuvil_runtime.h"
#include "cuvil_cover.h"

#include <stdlib.h>
#include <time.h>

static const cuvil_engine *const engine = &cuvil_engine_instance;
enum { BATCH = 8000, BATCHES = 400, LOGIC = 2000 };
static struct { cuvil_ring head; cuvil_probe_record records[16384]; } wide = {
    {CUVIL_RING_MAGIC, 16384, 0, {0}, {0}, 0, {0}, 0, {0}}, {{0, 0, 0}}};

static double cpu_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

__attribute__((noinline)) static void empty(uint32_t number, uint64_t trace, int outcome) {
    __asm__ volatile("" : : "r"(number), "r"(trace), "r"(outcome));
}

__attribute__((noinline)) static void probe(uint32_t number, uint64_t trace, int outcome) {
    __cuvil_cover("decision_node:timed", number, trace, outcome);
}

static double least(void (*call)(uint32_t, uint64_t, int)) {
    double found = 1e30;
    for (int batch = 0; batch < BATCHES; batch++) {
        wide.head.tail = wide.head.head;
        const double start = cpu_ns();
        for (int i = 0; i < BATCH; i++) call((uint32_t)i & 15, (uint64_t)i, i & 1);
        const double took = (cpu_ns() - start) / BATCH;
        if (took < found) found = took;
    }
    return found;
}

/* ROUNDS [ISA]: ns of an empty call and of a probe; then per round ns of the logic and of an inference. */
int main(int count, char **arguments) {
    const cuvil_clinical *logic = engine->clinical;
    cuvil_require_cpu();
    cuvil_start(engine, 1, count > 2 ? arguments[2] : NULL);
    for (int i = 0; i < engine->input_count; i++)
        for (long n = 0; n < engine->inputs[i].count; n++)
            ((float *)engine->input_buffers[i])[n] = (float)(n * 2654435761u % 1000) / 1000.0f;
    cuvil_this_ring = &wide.head;
    const double call = least(empty), probed = least(probe);
    if (wide.head.dropped) return 6;
    cuvil_putf("%.4f %.4f\n", call, probed);
    if (logic->ring) *logic->ring = &wide.head;
    for (int round = -1; round < atoi(arguments[1]); round++) {
        double start = cpu_ns();
        cuvil_infer();
        const double inference = cpu_ns() - start;
        start = cpu_ns();
        for (int i = 0; i < LOGIC; i++) {
            logic->begin();
            if (logic->before()) logic->after();
            wide.head.tail = wide.head.head;
        }
        if (round >= 0) cuvil_putf("%.1f %.1f\n", (cpu_ns() - start) / LOGIC, inference);
    }
    cuvil_putf("%d", logic->answer->status);
    for (int i = 0; i < logic->quantity_count; i++) {
        const union { double value; uint64_t bits; } number = {logic->answer->quantities[i]};
        cuvil_putf(" %llx", (unsigned long long)number.bits);
    }
    for (int i = 0; i < logic->decision_count; i++) cuvil_putf(" %d", logic->answer->decisions[i]);
    cuvil_put("\n");
    cuvil_flush();
    return 0;
}
"""


def policy_text(output: str, probes: bool) -> str:
    """Twelve conditions in three decisions over elements of ``output``."""
    quantities = "\n".join(f'  q{n}: "`{output}`[0, {n}]"' for n in range(6))
    return f"""version: 1
model: {{name: bench, version: "1"}}
quantities:
{quantities}
decisions:
  first: "(q0 > 0.5 and q1 < 0.25) or (q2 >= -1 and not q3 > 4)"
  second: "first or q4 > 0.1 or q5 > 0.2 or q0 < -3"
  third: "(second and q1 > -100) or (first and q2 < 100)"
{"coverage: {}" if probes else ""}
"""


def build(model: bytes, probes: bool) -> bytes:
    """The measuring program with the engine of ``model``."""
    bare = freeze_model(model)
    output = tensors_of(bare.module)[1][0].name
    policy = load_policy(policy_text(output, probes), "benchmark policy")
    frozen, target = freeze_model(model, policy=policy), native_target()
    identity = Identity("bench", "1", frozen.digest, "0" * 128, target.triple)
    program = generate(
        lower_to_l2(frozen.module, frozen.store),
        frozen.store,
        identity,
        guards_of(policy),
        isas=VARIANTS[target.machine],
        clinical=clinical_of(policy, frozen.module),
    )
    sources = {**runtime_sources(), **{name: program.files[name] for name in COMPILED_FILES}}
    del sources["cuvil_main.c"]
    return ZigDriver().build({**sources, "main.c": _MAIN.encode()}, target).data


def measure(program: bytes, rounds: int) -> tuple[list[list[float]], str]:
    """Lines of numbers, and the line of what was decided."""
    with tempfile.TemporaryDirectory(prefix="cuvil-probes-") as folder:
        path = Path(folder) / "program"
        path.write_bytes(program)
        path.chmod(0o755)
        done = subprocess.run([str(path), str(rounds)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the program ended with {done.returncode}: {done.stderr.strip() or 'records were lost'}")
    lines = done.stdout.splitlines()
    return [[float(word) for word in line.split()] for line in lines[:-1]], lines[-1]


def report(network: str, rounds: int) -> dict[str, Any]:
    """Nanoseconds of a probe and an empty call; microseconds of logic and inference, and the share of probes."""
    model = onnx_bytes(ZOO[network])
    (probed, said), (plain, said_plain) = (measure(build(model, probes), rounds) for probes in (True, False))
    if said != said_plain:
        raise SystemExit(f"the bits changed: {said} with probes, {said_plain} without")
    logic, plain_logic = (median(row[0] for row in rows[1:]) for rows in (probed, plain))
    inference = median(row[1] for row in plain[1:])
    return {
        "network": network,
        "rounds": rounds,
        "probe_ns": probed[0][1],
        "empty_call_ns": probed[0][0],
        "ratio": probed[0][1] / probed[0][0],
        "logic_ns": {"with_probes": logic, "without": plain_logic},
        "inference_us": inference / 1000,
        "share": (logic - plain_logic) / inference,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.probes", description="What a probe costs.")
    parser.add_argument("--network", default="resnet18", choices=sorted(ZOO))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = report(options.network, options.rounds)
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    print(f"a probe takes {found['probe_ns']:.2f} ns, {found['ratio']:.2f} times an empty call")
    print(
        f"{found['network']}: clinical logic {found['logic_ns']['with_probes']:.0f} ns with probes, "
        f"{found['logic_ns']['without']:.0f} ns without; probes are {100 * found['share']:.5f} % of an inference "
        f"({found['inference_us']:.0f} us)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
