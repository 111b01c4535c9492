"""The whole campaign: ``python tests/fuzz/fuzz_campaign.py [--mutations 10000] [--compiled 500] [--campaign N]``."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # as pytest does

from fuzz_compare import Compared, compare
from fuzz_import import Verdict, attempt
from fuzz_mutate import Mutant, Seed, mutant
from fuzz_seeds import door_models, node_tests, pieces, real_models, small_networks
from fuzz_workers import Ended, run_all

SECONDS = 10.0
LARGEST = 100_000
"""Bytes of a mutation that is compiled: weights become C text."""


def all_seeds() -> list[Seed]:
    """Node tests weigh half, everything else the other half."""
    tests = node_tests()
    others = [*small_networks() * 2, *real_models(), *pieces(), *door_models()]
    return [*tests, *others * max(1, len(tests) // len(others))]


def imports(seeds: Sequence[Seed], numbers: range, campaign: int, workers: int) -> list[tuple[Mutant, Verdict]]:
    """Every mutation with its verdict, in the order of their numbers."""
    made = (mutant(n, seeds, campaign) for n in numbers)
    found: list[tuple[Mutant, Verdict]] = []
    for one, result in run_all(attempt, made, SECONDS, workers):
        verdict = Verdict(result.kind, "", result.text) if isinstance(result, Ended) else result
        found.append((one, verdict))
        if len(found) % 500 == 0:
            kinds = Counter(v.kind for _, v in found)
            print(f"{len(found)} of {len(numbers)}: {dict(kinds)}", file=sys.stderr, flush=True)
    return sorted(found, key=lambda pair: pair[0].number)


def engines(found: Sequence[tuple[Mutant, Verdict]], wanted: int, workers: int) -> list[Compared]:
    """Of the accepted mutations that changed the model, evenly many of all numbers, ``wanted`` and a tenth more."""
    usable = [
        m
        for m, v in found
        if v.kind == "accepted" and v.stage == "generate" and m.data != m.seed.data and len(m.data) <= LARGEST
    ]
    most = wanted + wanted // 10
    chosen = usable if len(usable) <= most else [usable[i * len(usable) // most] for i in range(most)]
    return compare(chosen, workers=workers) if chosen else []


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--campaign", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--compiled", type=int, default=500, help="at least so many accepted mutations as engines")
    parser.add_argument("--keep", type=Path, help="folder for the mutations that show a defect")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = all_seeds()
    found = imports(seeds, range(args.first, args.first + args.mutations), args.campaign, args.workers)
    kinds = Counter(v.kind if v.defect else f"{v.kind} ({v.stage})" for _, v in found)
    print(json.dumps({"seeds": len({s.data for s in seeds}), "mutations": len(found), "kinds": dict(kinds)}, indent=1))
    wrong = [(m, f"{v.kind} in {v.stage}: {v.text[-400:]!r}") for m, v in found if v.defect]
    compared = engines(found, args.compiled, args.workers)
    print(json.dumps({"compiled": len(compared), "kinds": dict(Counter(c.kind for c in compared))}, indent=1))
    wrong += [(c.mutant, f"{c.kind}: {c.text[-400:]!r}") for c in compared if c.defect]
    for one, text in wrong:
        if args.keep:
            args.keep.mkdir(parents=True, exist_ok=True)
            (args.keep / f"{one.number}.onnx").write_bytes(one.data)
        print(f"{one.number} {one.seed.name} {one.how}: {text}")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
