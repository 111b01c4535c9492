"""``cuvil trace keys``: make, list, rotate and destroy the keys of pseudonyms."""

from __future__ import annotations

from compiler_kernels.stage import Json
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.home import current_home
from evidence.sessions.pseudonym_keys import PseudonymKeys


def init(as_json: bool) -> None:
    """The current epoch, made where there is none."""
    keys = PseudonymKeys(current_home().root)
    epoch, made = keys.create()
    if as_json:
        print_json({"epoch": epoch.number, "created": made, "folder": str(keys.folder)})
        return
    print(f"{keys.folder}: the key of epoch {epoch.number} " + ("was made" if made else "is there already"))
    if made:
        print("keep a copy where only those may read it who investigate incidents: without it and the store beside it")
        print("no record can be joined to an image")


def list_epochs(as_json: bool) -> None:
    """Number, time and state of each epoch."""
    keys = PseudonymKeys(current_home().root)
    epochs, current = keys.epochs(), keys.current()
    rows: list[dict[str, Json]] = [
        {
            "epoch": epoch.number,
            "created": epoch.created,
            "state": "destroyed" if epoch.key is None else "current" if epoch == current else "kept",
        }
        for epoch in epochs
    ]
    if as_json:
        print_json({"epochs": list(rows)})
        return
    for row in rows:
        print(f"{row['epoch']:4}  {row['created'] or '-':20}  {row['state']}")
    if current is None:
        print(f"{keys.folder}: no key makes pseudonyms; run `cuvil trace keys init`")


def rotate(as_json: bool) -> None:
    """A new epoch."""
    epoch = PseudonymKeys(current_home().root).rotate()
    if as_json:
        print_json({"epoch": epoch.number})
        return
    print(f"epoch {epoch.number} makes new pseudonyms; the keys before it are kept")


def destroy(number: int, as_json: bool) -> None:
    """The key of one epoch, for good."""
    PseudonymKeys(current_home().root).destroy(number)
    if as_json:
        print_json({"epoch": number, "state": "destroyed"})
        return
    print(f"the key of epoch {number} is destroyed: its pseudonyms can no longer be recomputed")
    print("what the store knows of them is still there; copies of the home (backups, snapshots) are out of reach")
