"""Sections ``thresholds``, ``quantities``, ``decisions``, ``safety``, ``fallbacks``, ``coverage`` (docs/policy.md)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, FiniteFloat, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from compiler_kernels.policy.expressions import LONGEST, RESERVED, parse_expression
from compiler_kernels.policy.section import Section

FAILURES: Final = ("input_guard", "output_guard", "safety_guard", "not_a_number", "refusal", "lockstep")
"""What can keep an engine from deciding, one fallback each."""


def _parses(text: str) -> str:
    parse_expression(text)
    return text


def _unsigned_zero(value: float) -> float:
    """+0 for -0, which canonical JSON does not know."""
    return value + 0.0


def _free(name: str) -> str:
    if name in RESERVED:
        raise ValueError("is a word of the expression language; choose another name")
    return name


Expression = Annotated[str, Field(min_length=1, max_length=LONGEST), AfterValidator(_parses)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=60), AfterValidator(_free)]
Requirement = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=80)]
Requirements = Annotated[tuple[Requirement, ...], Field(max_length=50)]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:/()-]*$", max_length=80)]
Labels = Annotated[tuple[Label, ...], Field(max_length=50)]
Words = Annotated[str, Field(max_length=1000)]

_REQUIREMENTS: Final = "Ids of the requirements this answers; coverage traces them to probes and test vectors."
_CLAUSES: Final = "Labels of clauses, kept as labels in the evidence and never interpreted."


class _Short(Section):
    """A section that may be written as one value of its principal key."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        full = handler.resolve_ref_schema(handler(core))
        description, title = full.pop("description", ""), full.pop("title", "")
        return {"title": title, "description": description, "anyOf": [full, cls._short_schema(full)]}

    @classmethod
    def _short_schema(cls, full: JsonSchemaValue) -> JsonSchemaValue:
        return dict(full["properties"][cls._principal()])

    @classmethod
    def _principal(cls) -> str:
        return next(iter(cls.model_fields))

    @model_validator(mode="before")
    @classmethod
    def _long_form(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value if value is None else {cls._principal(): value}
        # Lists of policy.json: strict validation takes them as tuples only where no validator stood between.
        return {key: tuple(item) if isinstance(item, list) else item for key, item in value.items()}


class Threshold(_Short):
    """A named number of the clinical logic. ``0.5`` is short for ``{value: 0.5}``."""

    value: Annotated[FiniteFloat, AfterValidator(_unsigned_zero)] = Field(
        description="The number; it is used as the nearest binary64 number."
    )
    source: Words = Field(default="", description="Where the number comes from: study, report, standard.")
    requirements: Requirements = Field(default=(), description=_REQUIREMENTS)


class Quantity(_Short):
    """A named number computed from tensors. Text is short for ``{value: TEXT}``."""

    value: Expression = Field(description="Expression over outputs and inputs, such as max(mask).")
    unit: Annotated[str, Field(max_length=40)] = Field(default="", description="Unit, for reports.")
    requirements: Requirements = Field(default=(), description=_REQUIREMENTS)


class Decision(_Short):
    """A named yes or no. Text is short for ``{when: TEXT}``."""

    when: Expression = Field(description="Condition under which the decision is true.")
    description: Words = Field(default="", description="What the decision means, quoted in reports.")
    requirements: Requirements = Field(default=(), description=_REQUIREMENTS)
    clauses: Labels = Field(default=(), description=_CLAUSES)


class Fallback(_Short):
    """What the engine answers instead of a decision. ``refuse`` is short for ``{action: refuse}``."""

    action: Literal["refuse", "answer"] = Field(
        description="refuse: exit code 3 and no output; answer: the decisions given here, and no output."
    )
    decisions: dict[Name, bool] = Field(
        default_factory=dict, description="With action answer: the value of every decision of the policy."
    )
    message: Words = Field(default="", description="What the user is told, such as: refer to a radiologist.")
    requirements: Requirements = Field(default=(), description=_REQUIREMENTS)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.action == "refuse" and self.decisions:
            raise ValueError("has decisions although its action is refuse; use the action answer or leave them out")
        return self


class SafetyGuard(_Short):
    """A named condition that must hold before anything is decided. Text is short for ``{require: TEXT}``."""

    require: Expression = Field(description="Condition that must be true; if it is false the fallback answers.")
    description: Words = Field(default="", description="What the guard protects from, quoted in reports.")
    fallback: Fallback | None = Field(default=None, description="Instead of fallbacks.safety_guard, for this guard.")
    requirements: Requirements = Field(default=(), description=_REQUIREMENTS)
    clauses: Labels = Field(default=(), description=_CLAUSES)


class Safety(Section):
    """Checks around the inference."""

    lockstep: bool = Field(
        default=False, description="Compute every inference twice, by independent kernels, and compare all bits."
    )
    guards: Annotated[dict[Name, SafetyGuard], Field(max_length=200)] = Field(
        default_factory=dict, description="Named conditions; those over inputs alone are checked before the inference."
    )


class Fallbacks(Section):
    """What happens for each failure; one that is absent is treated as ``default`` says."""

    default: Fallback = Field(default_factory=lambda: Fallback(action="refuse"), description="For every other failure.")
    input_guard: Fallback | None = Field(default=None, description="A value of an input breaks its guard.")
    output_guard: Fallback | None = Field(default=None, description="A value of an output breaks its guard.")
    safety_guard: Fallback | None = Field(default=None, description="A safety guard does not hold.")
    not_a_number: Fallback | None = Field(default=None, description="A quantity is NaN or infinite.")
    refusal: Fallback | None = Field(default=None, description="The engine refuses a size or a value at run time.")
    lockstep: Fallback | None = Field(default=None, description="The two computations of lockstep differ.")


class Coverage(Section):
    """Probes in the clinical logic, and what `cuvil coverage` must reach; percentages of what is feasible."""

    probes: bool = Field(default=True, description="Compile probes in; without the section there are none.")
    statement: Annotated[float, Field(ge=0, le=100)] = Field(default=100.0, description="Least statement coverage.")
    decision: Annotated[float, Field(ge=0, le=100)] = Field(default=100.0, description="Least decision coverage.")
    condition: Annotated[float, Field(ge=0, le=100)] = Field(default=100.0, description="Least condition coverage.")
    mcdc: Annotated[float, Field(ge=0, le=100)] = Field(default=100.0, description="Least MC/DC.")
    criterion: Literal["masking", "unique_cause"] = Field(
        default="masking", description="The MC/DC that `mcdc` limits; both are reported."
    )


Thresholds = Annotated[dict[Name, Threshold], Field(max_length=500)]
Quantities = Annotated[dict[Name, Quantity], Field(max_length=500)]
Decisions = Annotated[dict[Name, Decision], Field(max_length=200)]
