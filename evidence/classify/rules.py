"""The rules of the change classification: one class for each kind of difference, and why.

docs/classification.md shows this table to readers; a test keeps the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from compiler_kernels.stage import Json

FIELDS: Final = ("none", "build", "corrective", "minor", "major")
"""Classes from the least to the most serious. major is X of X.Y.Z.B, minor Y, corrective Z, build B."""
LETTERS: Final = {"major": "X", "minor": "Y", "corrective": "Z", "build": "B", "none": "-"}


@dataclass(frozen=True)
class Rule:
    """``field``: the class of every difference of this kind."""

    id: str
    field: str
    difference: str
    why: str


RULES: Final = (
    Rule("model.interface", "major", "inputs or outputs, their names, shapes or types",
         "what the engine is given or answers is another thing"),
    Rule("model.operators", "major", "operators, their attributes, sizes or connections",
         "another algorithm"),
    Rule("model.weights", "major", "weights",
         "another training; that the performance stayed the same is not told by any file of a build"),
    Rule("model.untold", "major", "the model differs, and its graph is not among the files",
         "it could be the algorithm"),
    Rule("model.names", "build", "names of nodes or tensors, order of listing, exporter",
         "the same operators, connections and weights"),
    Rule("model.file", "build", "the model's file, while the imported graph is the same",
         "another way to store the same model"),
    Rule("target", "major", "target",
         "another computing platform is another runtime environment, to be tested as such"),
    Rule("arithmetic.measured", "minor", "choices of arithmetic before the freeze, errors measured in both builds",
         "results differ by rounding, within the limit that both builds were held to"),
    Rule("arithmetic.unmeasured", "major", "the same without such a measurement in both builds",
         "nothing says by how much results differ"),
    Rule("policy.identity", "major", "name of the model or its intended purpose",
         "another product or another use"),
    Rule("policy.logic", "major", "thresholds, quantities, decisions, safety conditions, fallbacks",
         "the same image may lead to another answer"),
    Rule("policy.seed", "major", "seed of random operators",
         "the same image may lead to another answer"),
    Rule("policy.guard-loosened", "major", "a guard, a size limit or a safety condition removed or widened",
         "the engine answers where it refused"),
    Rule("policy.guard-tightened", "minor", "a guard, a size limit or a safety condition added or narrowed",
         "the engine refuses where it answered; what it answers is unchanged"),
    Rule("policy.process", "build", "what must be signed, stated, measured or recorded; texts for reports",
         "the engine answers as before"),
    Rule("policy.version", "build", "the version that the policy states",
         "a name; what it stands for is told by the other rows"),
    Rule("policy.unknown", "major", "a field that no rule knows",
         "its effect is not known to this version"),
    Rule("policy.untold", "major", "the policies differ, and one is not among the files",
         "it could be the clinical logic"),
    Rule("compiler.cuvil", "corrective", "code of the compiler or the runtime",
         "after the freeze every result is defined to the bit and compared with the reference"),
    Rule("compiler.toolchain", "corrective", "C compiler, its flags, or libraries it brings",
         "as for the compiler itself"),
    Rule("compiler.untold", "corrective", "the build reports differ, and one is not among the files",
         "it could be the toolchain"),
    Rule("comparison.untold", "major", "the newer engine was not compared with the reference, or did not pass",
         "that it computes what the frozen graph says is not told"),
    Rule("sbom.added", "minor", "a component more in the bill of materials",
         "new off-the-shelf software, to be assessed as such"),
    Rule("sbom.changed", "corrective", "another version of a component, or one less",
         "maintenance of what is there"),
    Rule("sbom.untold", "minor", "what is linked cannot be compared: no bill of materials on one side",
         "there could be a new component"),
    Rule("evidence", "build", "code, settings or outcome of budget, comparison and further evidence",
         "no part of the engine"),
    Rule("configuration", "build", "settings of a stage that no rule above covers, such as file names",
         "what a result depends on has a row of its own"),
    Rule("engine.unexplained", "major", "the engines differ, and nothing recorded explains it",
         "the build is not reproducible; find out why before anything is released"),
)  # fmt: skip
BY_ID: Final = {rule.id: rule for rule in RULES}


@dataclass(frozen=True)
class Difference:
    """One difference between the builds. ``told``: the files told it; otherwise the more serious case was taken."""

    rule: Rule
    detail: str
    told: bool = True

    def to_json(self) -> dict[str, Json]:
        return {"rule": self.rule.id, "field": self.rule.field, "detail": self.detail, "told": self.told}


def difference(rule: str, detail: str) -> Difference:
    """A difference under the rule with this id; rules about what is untold say so by their name."""
    return Difference(BY_ID[rule], detail, told=not rule.endswith((".untold", ".unmeasured")))


def most_serious(found: list[Difference]) -> str:
    """The class of all differences together: that of the most serious one."""
    return FIELDS[max((FIELDS.index(item.rule.field) for item in found), default=0)]
