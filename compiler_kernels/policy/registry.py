"""Section ``registry``: what only the manufacturer can say of the model as a device, for hospitals to find.

Nothing of it is judged or enters the engine. The release signs the policy, so it is the manufacturer's own statement.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from compiler_kernels.policy.section import Section

Text = Annotated[str, Field(min_length=1, max_length=400, pattern=r"\S")]
Uri = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9+.-]*:\S+$", max_length=400)]


class Classification(Section):
    """A class or category of the device (FHIR R5 DeviceDefinition.classification)."""

    text: Text = Field(description="The class in words, for example Class III.")
    system: Uri | None = Field(default=None, description="Address of the code system of `code`.")
    code: Text | None = Field(default=None, description="The class as a code of `system`.")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.system is None) != (self.code is None):
            raise ValueError("must have both system and code, or neither")
        return self


class RegulatoryIdentifier(Section):
    """A number under which an authority knows the device (DeviceDefinition.regulatoryIdentifier)."""

    number: Text = Field(description="The number as the authority writes it.")
    type: Literal["basic", "master", "license"] = Field(
        default="license",
        description="`license` for a registration certificate; `basic` and `master` as FHIR has them.",
    )
    issuer: Uri = Field(description="Address of the authority, for example https://www.nmpa.gov.cn.")
    jurisdiction: Uri = Field(description="Where it holds, for example urn:iso:std:iso:3166#CN.")


class Conformance(Section):
    """A standard the manufacturer declares conformity with (DeviceDefinition.conformsTo)."""

    specification: Text = Field(description="The standard, for example IEC 62304.")
    versions: tuple[Text, ...] = Field(default=(), description="Its editions, for example 2006+A1:2015.")
    category: Text | None = Field(default=None, description="What it is about, for example software life cycle.")


class RegistryStatements(Section):
    """All three lists are the manufacturer's statements; the registry shows them and checks none."""

    classification: tuple[Classification, ...] = Field(default=(), description="Classes and categories of the device.")
    regulatory_identifiers: tuple[RegulatoryIdentifier, ...] = Field(
        default=(), description="Registration certificates and other numbers of authorities."
    )
    conforms_to: tuple[Conformance, ...] = Field(default=(), description="Standards conformity is declared with.")
