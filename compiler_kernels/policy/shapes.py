"""Section ``shapes``: bounds of the model's symbolic dimensions, which stay variable in the engine (docs/shapes.md)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from compiler_kernels.ir.symbols import LARGEST_SIZE, Bound
from compiler_kernels.policy.section import Section

Size = Annotated[int, Field(ge=1, le=LARGEST_SIZE)]
Symbol = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$", max_length=100)]


class SymbolBound(Section):
    """The sizes one symbol may take. ``[1, 8]`` is short for ``{min: 1, max: 8}`` and ``8`` for ``[8, 8]``."""

    min: Size = Field(default=1, description="Smallest size.")
    max: Size = Field(description="Largest size; memory is planned for it.")
    multiple: Size = Field(
        default=1, description="Only multiples of this number between min and max are allowed, and proofs rely on it."
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The published schema knows the short forms too."""
        size = {"type": "integer", "minimum": 1, "maximum": LARGEST_SIZE}
        pair = {"type": "array", "items": size, "minItems": 2, "maxItems": 2}
        full = handler.resolve_ref_schema(handler(core))
        description = full.pop("description", "")
        return {"title": full.pop("title", ""), "description": description, "anyOf": [full, pair, size]}

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"min": value, "max": value}
        if isinstance(value, list | tuple):
            if len(value) != 2:
                raise ValueError("must be a lowest and a highest size, such as [1, 8]")
            return {"min": value[0], "max": value[1]}
        return value

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self._first() > self._last():
            raise ValueError(
                "must allow at least one size: min at most max, with a multiple of `multiple` between them"
            )
        return self

    def _first(self) -> int:
        return -(-self.min // self.multiple) * self.multiple

    def _last(self) -> int:
        return self.max // self.multiple * self.multiple

    def bound(self) -> Bound:
        """The bound as the importer takes it: lowest and highest are themselves multiples."""
        return Bound(self._first(), self._last(), self.multiple)


Shapes = Annotated[dict[Symbol, SymbolBound], Field(max_length=32)]
SHAPES_DESCRIPTION: Final = (
    "Bounds of symbolic dimensions, by symbol (an anonymous dimension is INPUT_AXIS): the engine takes every size "
    "within them."
)
