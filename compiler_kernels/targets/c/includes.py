"""``#include`` lines of generated C, each with the ids of the clauses that the header's code answers.

The ids are those of the clause table of the evidence room, which a test compares with this one; only ids in ASCII stand
here, since they end up in C.
"""

from __future__ import annotations

from typing import Final

REPRODUCIBLE: Final = "IEEE-754-2019 11"
UNIT_VERIFIED: Final = "IEC-62304 5.5.5"
VERSION_RELEASED: Final = "IEC-62304 5.8.4"
VERSION_CONTROL: Final = "NMPA-2019-43 2.3.5"

_OF_HEADERS: Final[dict[str, tuple[str, ...]]] = {
    "cuvil_engine.h": (VERSION_RELEASED, VERSION_CONTROL),  # the engine's description: model, version, digests
    "cuvil_clinical.h": (REPRODUCIBLE, UNIT_VERIFIED),  # numbers of the clinical logic
    "cuvil_cover.h": (UNIT_VERIFIED,),
    "cuvil_fpenv.h": (REPRODUCIBLE,),  # rounding and subnormals, whatever the caller had set
    "cuvil_x86.h": (REPRODUCIBLE,),
}
# Every header of the arithmetic defines results to the bit and is compared with the independent reference.
_ARITHMETIC: Final = (REPRODUCIBLE, UNIT_VERIFIED)


def clauses_of(header: str) -> tuple[str, ...]:
    """Ids of the clauses ``header`` answers; every ``ca1_*.h`` is arithmetic. ``KeyError`` for an unknown header."""
    return _ARITHMETIC if header.startswith("ca1_") else _OF_HEADERS[header]


def include(header: str) -> str:
    """The line that includes ``header``."""
    return f'#include "{header}" /* clauses: {"; ".join(clauses_of(header))} */'
