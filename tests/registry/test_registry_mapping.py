"""What the registry reads of a bill of materials, whatever people call their tensors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.verifier.errors import UsageError
from fhir_registry.mapping import names
from fhir_registry.mapping.facts import Tensor, _tensor
from fhir_registry.validation.paths import evaluate
from fhir_registry.validation.profile import profile


@given(st.text(min_size=1), st.sampled_from(["float32", "int64", "bool"]), st.sampled_from(["", "1", "N, 3", "1, 2*N"]))
def test_tensors_are_read_whatever_their_names(name: str, dtype: str, shape: str) -> None:
    found = _tensor({"format": f"{name} {dtype}[{shape}]"})
    assert found == Tensor(name, f"tensor({dtype})[{shape.replace(' ', '')}]")
    compiled = profile(names.PROFILE)
    assert compiled is not None
    (rule,) = compiled.root.children["property"].slices["inputProfile"].children["value"].constraints
    assert evaluate(rule.expression, f"{found.name}: {found.profile}", {}) == [True]


@pytest.mark.parametrize("text", ["", "image", "image float32", "image float32[", "float32[1]", " float32[1]"])
def test_a_bill_with_other_tensors_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cuvil sbom"):
        _tensor({"format": text})
