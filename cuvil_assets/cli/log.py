"""``cuvil log``: show, prove and check the transparency log."""

from __future__ import annotations

import json
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.files import write_atomic
from cuvil_assets.home import current_home
from evidence.log import Log
from evidence.verifier.log import read_checkpoint
from evidence.verifier.trust import default_trust_root, load_trust_root


def show(as_json: bool) -> None:
    """Every entry in a line, then the last head."""
    log = Log(current_home().root)
    entries = [json.loads(item) for item in log.entries()]
    heads = log.heads()
    head = read_checkpoint(heads[-1].payload) if heads else None
    if as_json:
        last: Json = {"origin": head.origin, "tree_size": head.size, "root": head.root.hex()} if head else None
        print_json({"entries": entries, "head": last})
        return
    for index, entry in enumerate(entries):
        print(f"{index:6} {entry['kind']:8} {entry['model_version']}  {entry['statement']['sha3_512'][:32]}...")
    print(f"{head.origin}: {head.size} entries, root {head.root.hex()}" if head else "the log is empty")


def prove(index: int, output: Path, as_json: bool) -> None:
    """Write an inclusion proof."""
    proof = Log(current_home().root).prove(index)
    try:
        write_atomic(output, proof)
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror}); choose another --output") from None
    if as_json:
        print_json({"proof": str(output), "leaf_index": index})
        return
    print(f"{output}: inclusion proof of entry {index}")


def check(trust_root: Path | None, as_json: bool) -> None:
    """Recompute the log; ends with 1 and the check ``log`` when a head does not hold."""
    log = Log(current_home().root)
    heads = log.check(load_trust_root(trust_root or default_trust_root()))
    if as_json:
        print_json({"ok": True, "entries": len(log.entries()), "heads": heads})
        return
    print(f"the log holds: {len(log.entries())} entries, {heads} signed heads, each an extension of the one before")
