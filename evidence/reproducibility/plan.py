"""What is varied in each rebuild: a seeded plan, the same on every machine.

The kinds are those of the Reproducible Builds project's variations (https://reproducible-builds.org/docs/ and
reprotest) and two of our own: how the compiler's cache stands, and which vector instructions NumPy may use.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from compiler_kernels.stage import Json

DEFAULT_SEED: Final = 20261130
KEPT, FRESH = "kept", "compiled again"

_LONG = "a-directory-whose-name-is-as-long-as-names-of-directories-may-be/" + "x" * 200
_DIRECTORIES = (
    "b",
    "with spaces and (brackets)",
    "données médicales",
    "医学影像/模型",
    _LONG,
    "quote's $dollar & semicolon; #hash",
    "a=b,c",
    "one/two/three/four/five/six/seven",
)
_USERS = (("builder", 30001), ("a.person", 30002), ("ci", 30003), ("user with space", 30004), ("пользователь", 30005))
_HOSTS = ("buildhost", "x", "node-17.example.org", "a-rather-long-host-name-of-a-machine-in-a-rack")
# POSIX form (name and offset west of Greenwich): needs no time zone database.
_ZONES = (("UTC0", 0), ("<+1345>-13:45", 49500), ("NST3:30", -12600), ("<+0545>-5:45", 20700), ("HST10", -36000))
_LOCALES = ("C", "C.UTF-8", "POSIX", "de_DE.UTF-8", "tr_TR.UTF-8", "zh_CN.UTF-8", "ar_EG.UTF-8")
_UMASKS = (0o022, 0o077, 0o002, 0o027, 0o000)
_DAY: Final = 86400


@dataclass(frozen=True)
class Variation:
    """The world of one rebuild. ``number`` counts from 1.

    ``directory``: where Cuvil's code, its temporary files and its working directory lie, below a folder of the
    rebuild's own. ``uid``: user and group id. ``umask``: of the process. ``timezone``: value of ``TZ``, ``utc_offset``
    in seconds east. ``locale``: value of ``LC_ALL``. ``clock_offset``: seconds added to the clock. ``cpus``: processors
    the rebuild may use, 0 for all. ``file_order``: seed of the order in which directories list their files.
    ``hash_seed``: ``PYTHONHASHSEED``. ``vectors``: whether NumPy may use vector instructions beyond its baseline.
    ``environment``: size in bytes of an environment variable of no meaning. ``compiler_cache``: ``kept``, a copy of the
    C libraries compiled before, or ``compiled again``.
    """

    number: int
    directory: str
    user: str
    uid: int
    umask: int
    timezone: str
    utc_offset: int
    locale: str
    clock_offset: int
    cpus: int
    file_order: int
    hostname: str
    hash_seed: int
    vectors: bool
    environment: int
    compiler_cache: str

    def to_json(self) -> dict[str, Json]:
        return {**asdict(self), "umask": f"{self.umask:04o}"}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Variation:
        """Inverse of ``to_json``; ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
        values = {item.name: document[item.name] for item in fields(cls)}
        return cls(**{**values, "umask": int(values["umask"], 8)})


def make_plan(rebuilds: int, seed: int = DEFAULT_SEED, fresh_caches: int = 1) -> tuple[Variation, ...]:
    """``rebuilds`` variations; the first ``fresh_caches`` of them compile the C library again (about a minute each).

    Each kind runs through all its values before one comes again, each in an order of its own, so that a few rebuilds
    already differ in every kind.
    """
    rng = random.Random(seed)

    def turns(values: tuple[Any, ...]) -> list[Any]:
        found: list[Any] = []
        while len(found) < rebuilds:
            found += rng.sample(values, len(values))
        return found

    directories, users, hosts, zones = turns(_DIRECTORIES), turns(_USERS), turns(_HOSTS), turns(_ZONES)
    locales, umasks, cpus, vectors = turns(_LOCALES), turns(_UMASKS), turns((0, 1)), turns((True, False))
    return tuple(
        Variation(
            number=index + 1,
            directory=directories[index],
            user=users[index][0],
            uid=users[index][1],
            umask=umasks[index],
            timezone=zones[index][0],
            utc_offset=zones[index][1],
            locale=locales[index],
            clock_offset=rng.randrange(-20 * 365, 10 * 365) * _DAY + rng.randrange(_DAY),
            cpus=cpus[index],
            file_order=rng.randrange(1 << 31),
            hostname=hosts[index],
            hash_seed=rng.randrange(1, 1 << 32),
            vectors=vectors[index],
            environment=rng.randrange(1, 4096),
            compiler_cache=FRESH if index < fresh_caches else KEPT,
        )
        for index in range(rebuilds)
    )
