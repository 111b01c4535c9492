"""Section ``sbom``: what the software bill of materials must say, and what a release may not contain."""

from __future__ import annotations

import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from compiler_kernels.policy.section import Section


def _real_date(value: str) -> str:
    try:
        datetime.date.fromisoformat(value)
    except ValueError:
        raise ValueError("must be a date as in 2030-12-31, in quotes") from None
    return value


Date = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$"), AfterValidator(_real_date)]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class DataSet(Section):
    """A data set the model was made or tested with; only its digest enters the evidence, never the data."""

    name: Text = Field(description="Name of the data set.")
    sha256: Sha256 = Field(description="SHA-256 of the data set's archive or manifest.")
    use: Literal["training", "validation", "test"] = Field(default="training", description="What it was used for.")
    description: str = Field(default="", max_length=2000, description="Where it comes from; no personal data.")


class SoupItem(Section):
    """What only the manufacturer can say about a component of others (IEC 62304 5.3.3, 5.3.4, 4.3, 7.1.3)."""

    requirements: Text = Field(description="Functional and performance requirements (IEC 62304 5.3.3).")
    environment: Text = Field(description="Hardware and software it needs (IEC 62304 5.3.4).")
    safety_class: Literal["A", "B", "C"] = Field(description="Software safety class (IEC 62304 4.3).")
    anomaly_list: Text = Field(description="Which published anomaly list was evaluated, with the result (7.1.3).")
    reviewed: Date = Field(description="When the anomaly list was evaluated.")


class Sbom(Section):
    """Gates of a release over its bill of materials, and statements that enter it."""

    manufacturer: str = Field(
        default="", max_length=200, description="Legal entity that places the engine on the market."
    )
    task: str = Field(default="", max_length=200, description="Task of the model, for its model card.")
    datasets: tuple[DataSet, ...] = Field(default=(), description="Data sets of the model, by digest.")
    denied_licences: tuple[Text, ...] = Field(
        default=(), description="SPDX licence identifiers that no linked component may have, for example GPL-3.0-only."
    )
    allow_unknown_supplier: bool = Field(default=False, description="Accept linked components without supplier.")
    exact_versions: bool = Field(default=True, description="Refuse a linked component without an exact version.")
    licence_texts: bool = Field(default=True, description="Refuse a linked component without SPDX licence and text.")
    supported_until: Date | None = Field(
        default=None, description="Day until which every linked component of others must be supported."
    )
    end_of_support: dict[str, Date] = Field(
        default_factory=dict, description="Day on which support of a component ends, by its name (musl, zig-libc...)."
    )
    soup: dict[str, SoupItem] = Field(
        default_factory=dict, description="The manufacturer's statements for the SOUP list, by name of the component."
    )
