"""The strict DER reader: what X.690 forbids is refused, whoever would accept it."""

from __future__ import annotations

import pytest
from asn1crypto import x509

from evidence.verifier.canonical import MalformedError
from evidence.verifier.strict_der import check_der, check_sorted, parse


@pytest.mark.parametrize(
    "text",
    [
        "020101",
        "02020080",
        "0101ff",
        "0500",
        "3000",
        "06032a0304",
        "03020780",
        "310702010102020080",
        "170d3236303630313132303030305a",
        "180f32303531303630313132303030305a",
    ],
)
def test_der_is_accepted(text: str) -> None:
    check_der(bytes.fromhex(text), "it")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("02020001", "integer"),
        ("0202ff80", "integer"),
        ("0200", "integer"),
        ("010101", "boolean"),
        ("050100", "NULL"),
        ("0603802a03", "identifier"),
        ("06022a83", "identifier"),
        ("03020781", "bit string"),
        ("0300", "bit string"),
        ("028101" + "01", "minimal"),
        ("3080020101" + "0000", "indefinite"),
        ("2403040101", "constructed"),
        ("1000", "constructed"),
        ("3106" + "020102" + "020101", "sorted"),
        ("02010100", "follow"),
        ("020201", "beyond"),
        ("02", "ends"),
        ("", "ends"),
        ("1f8101" + "00", "tag"),
        ("0c01ff", "character"),
        ("170b32363036303131323030" + "5a", "UTCTime"),
        ("1811" + b"20510601120000.0Z".hex(), "GeneralizedTime"),
        ("30" + "83" + "000001" + "00", "minimal"),
    ],
)
def test_anything_else_is_refused(text: str, word: str) -> None:
    with pytest.raises(MalformedError, match=word):
        check_der(bytes.fromhex(text), "it")


def test_deep_nesting_is_refused() -> None:
    data = b""
    for _ in range(60):
        data = b"\x30" + bytes([len(data)]) + data
    with pytest.raises(MalformedError, match="deeply"):
        check_der(data, "it")


@pytest.mark.parametrize("text", ["3003010100", "3006010100020100"])
def test_a_default_value_that_is_written_out_is_refused(text: str) -> None:
    parse(x509.BasicConstraints, bytes.fromhex("3000"), "it")
    with pytest.raises(MalformedError, match="re-encode"):
        parse(x509.BasicConstraints, bytes.fromhex(text), "it")


def test_the_schema_is_checked_too() -> None:
    with pytest.raises(MalformedError, match="parsed"):
        parse(x509.BasicConstraints, bytes.fromhex("020101"), "it")


def test_sets_under_an_implicit_tag() -> None:
    check_sorted([b"\x01", b"\x02"], "it")
    with pytest.raises(MalformedError, match="sorted"):
        check_sorted([b"\x02", b"\x01"], "it")
