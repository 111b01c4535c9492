"""What a rebuild starts from and is compared with: both come from the build proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json, sha3_512_hex
from compiler_kernels.stages.order import COMPILE_STAGES
from evidence.budget import BUDGET
from evidence.equivalence import EQUIVALENCE
from evidence.verifier.chain import Chain, read_chain
from evidence.verifier.statement import Statement

COMPILE = tuple(stage.name for stage in COMPILE_STAGES)
"""The stages up to the engine; none of them depends on how fast or loaded the machine is."""
EVERYTHING = (*COMPILE, BUDGET.name, EQUIVALENCE.name)
_CODE = {stage.name: stage.code_version for stage in (*COMPILE_STAGES, BUDGET, EQUIVALENCE)}


@dataclass(frozen=True)
class Recorded:
    """The inputs of a build and what it made of them.

    ``sources``: role to bytes. ``config``: what the stages were told. ``expected``: per stage the SHA3-512 of every
    artefact, in the order of the record; ``facts`` likewise the facts. ``other_code``: stages whose code here is not
    the code that made the record.
    """

    statement: Statement
    sources: Mapping[str, bytes] = field(repr=False)
    config: Mapping[str, Json]
    expected: Mapping[str, Mapping[str, str]]
    facts: Mapping[str, Mapping[str, Json]] = field(repr=False)
    other_code: tuple[str, ...]

    @property
    def engine_sha3_512(self) -> str:
        return self.statement.subject_digests["sha3_512"]


def recorded_build(
    statement: Statement, find: Callable[[str], bytes | None], given: Mapping[str, tuple[str, bytes]]
) -> Recorded:
    """The recorded inputs of the build in ``statement``.

    Each source comes from ``given`` (role to the file's name and bytes) or, by digest, from ``find``. ``UsageError``
    when one is in neither, is another file than the recorded one, or the proof lacks a stage.
    """
    chain = read_chain(statement.chain, statement.head)
    sources = {}
    for role, digest in statement.sources.items():
        name, data = given.get(role, ("", None))
        if data is not None and sha3_512_hex(data) != digest:
            raise UsageError(f"{name}: is not the {role} this engine was built from; give that file")
        found = data if data is not None else find(digest)
        if found is None:
            option = "--policy" if role == "policy.yaml" else "--model"
            raise UsageError(f"the {role} of this build is not in this machine's store; give it with {option}")
        sources[role] = found
    config: dict[str, Json] = {}
    for record in chain.records:
        config.update(record.config)
    missing = [name for name in EVERYTHING if chain.record(name) is None]
    if missing:
        raise UsageError(f"the proof has no record of stage {missing[0]}; build the engine again")
    return Recorded(
        statement,
        sources,
        config,
        {record.stage: {item.name: item.sha3_512 for item in record.artifacts} for record in chain.records},
        {record.stage: dict(record.facts) for record in chain.records},
        _other_code(chain),
    )


def _other_code(chain: Chain) -> tuple[str, ...]:
    return tuple(
        record.stage for record in chain.records if record.stage in _CODE and record.code_version != _CODE[record.stage]
    )
