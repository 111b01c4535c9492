"""What this home is asked to watch: ``$CUVIL_HOME/surveillance.yaml``, read strictly like a policy.

certificate_days: 30            # warn so many days before a certificate ends
advisories: /srv/osv            # file or folder of OSV advisories
policies: [/srv/policies/cxr.yaml]   # policies in force; a build made from another one is due
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.policy.yaml_text import Document, read_yaml
from cuvil_assets.home import Home

FILE = "surveillance.yaml"
DAYS = 30
_KEYS = ("certificate_days", "advisories", "policies")


@dataclass(frozen=True)
class Watch:
    """``advisories`` is ``None`` where nobody gave any; ``policies`` are files."""

    certificate_days: int = DAYS
    advisories: Path | None = None
    policies: tuple[Path, ...] = ()


def load_watch(home: Home) -> Watch:
    """The settings of ``home``, or the defaults; ``UsageError`` with line and column for what is wrong in them."""
    path = home.root / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Watch()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); correct or remove it") from None
    document = read_yaml(text, str(path))
    data = document.data
    if not isinstance(data, dict):
        raise document.error((), "must be a mapping with the keys " + ", ".join(_KEYS))
    for key in data:
        if key not in _KEYS:
            raise document.error((key,), f"is not a known key; the known keys are {', '.join(_KEYS)}", at_key=True)
    days = data.get("certificate_days", DAYS)
    if not isinstance(days, int) or isinstance(days, bool) or not 0 <= days <= 3650:
        raise document.error(("certificate_days",), "must be a whole number of days from 0 to 3650")
    policies = data.get("policies", ())
    if not isinstance(policies, tuple):
        raise document.error(("policies",), "must be a list of files")
    return Watch(
        days,
        _path(document, ("advisories",), data["advisories"]) if "advisories" in data else None,
        tuple(_path(document, ("policies", n), item) for n, item in enumerate(policies)),
    )


def _path(document: Document, where: tuple[str | int, ...], value: object) -> Path:
    if not isinstance(value, str) or not Path(value).is_absolute():
        raise document.error(where, "must be an absolute path: the schedule runs in no particular folder")
    return Path(value)
