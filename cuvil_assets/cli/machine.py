"""``cuvil doctor``, ``setup`` and ``keys init``: what this machine has and gets."""

from __future__ import annotations

import dataclasses

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.stage import Json, as_json
from cuvil_assets.cli.outcome import note, print_json


def doctor(json: bool) -> None:
    """Print the rows; ``UnsupportedError`` (exit 4) when something Cuvil cannot work without is missing."""
    from compiler_kernels.toolchain.doctor import doctor as rows_of

    rows = rows_of()
    missing = [row for row in rows if row.status == "missing"]
    if json:
        checks = as_json([dataclasses.asdict(row) for row in rows])
        print_json({"ok": not missing, "checks": checks})
    else:
        width = max(len(row.name) for row in rows)
        for row in rows:
            print(f"{row.status:9} {row.name:{width}}  {row.detail}")
    if missing and not json:
        raise UnsupportedError(f"{missing[0].name}: {missing[0].detail}")


def setup(json: bool) -> None:
    """Compile the C library of every target into the cache, and make the instance of Dagster."""
    from compiler_kernels.targets.registry import TARGETS
    from compiler_kernels.toolchain.zig import warm, zig_cache
    from cuvil_assets.builder import open_instance
    from cuvil_assets.home import current_home

    def say(line: str) -> None:
        if not json:
            print(line, flush=True)

    warm(TARGETS.values(), say)
    say("preparing the record of builds")
    with open_instance(current_home()):
        pass
    say(f"ready; compiled C libraries are in {zig_cache()}")
    if json:
        print_json({"ok": True, "targets": list[Json](TARGETS), "zig_cache": str(zig_cache())})


def keys_init(json: bool) -> None:
    """Make a key set, or say which one is there."""
    from cuvil_assets import audit
    from evidence.keys import default_home, init_keys, key_id
    from evidence.verifier.trust import TRUST_ROOT_FILE

    keys = init_keys()
    remark = audit.record(default_home(), "keys-init", audit.keys_fields(keys)) if keys.created else ""
    found: dict[str, Json] = {
        "folder": str(keys.folder),
        "created": keys.created,
        "grade": keys.trust_root.grade,
        "encrypted": keys.encrypted,
        "trust_root": str(keys.folder / TRUST_ROOT_FILE),
        "keys": {signer.algorithm: key_id(signer.spki) for signer in keys.signers},
        **({"audit": remark} if remark else {}),
    }
    if json:
        print_json(found)
        return
    if remark:
        note(remark)
    print(f"{'made' if keys.created else 'found'} the key set in {keys.folder}")
    print(f"grade: {keys.trust_root.grade}; private keys {'encrypted' if keys.encrypted else 'in plain files'}")
    for signer in keys.signers:
        print(f"{signer.algorithm}: {key_id(signer.spki)}")
    print(f"trust root: {found['trust_root']}")
