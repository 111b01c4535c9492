"""The pseudonym of an image: one HMAC over the four identifiers in canonical form."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.sessions.pseudonym import Identifiers, identifiers, is_pseudonym, message, pseudonym
from evidence.sessions.trace_context import new_context

KEY = bytes(range(32))
IMAGE = Identifiers("1.2.3", "1.2.3.4", "1.2.3.4.5", "PAT1")


def test_the_value_is_that_of_openssl() -> None:
    # printf 'cuvil-dicom-pseudonym/1\0\x20\0\x0d\0\0\0\x051.2.3...' |
    # openssl dgst -sha256 -mac HMAC -macopt hexkey:0001...1f -binary | basenc --base64url
    assert pseudonym(KEY, IMAGE) == "Vat5WQYwrkDu5HZYilyr4uJI_POy-rsUqga96dyEIpE"


def test_the_value_is_hmac_by_its_definition() -> None:
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in KEY.ljust(64, b"\0")) + message(IMAGE)).digest()
    outer = hashlib.sha256(bytes(b ^ 0x5C for b in KEY.ljust(64, b"\0")) + inner).hexdigest()
    assert base64.urlsafe_b64decode(pseudonym(KEY, IMAGE) + "=").hex() == outer


@pytest.mark.parametrize("padding", ["\0", " ", "\0\0", " \0"])
def test_padding_of_a_uid_is_no_part_of_it(padding: str) -> None:
    assert identifiers("1.2.3" + padding, "1.2.3.4", "1.2.3.4.5" + padding, "PAT1") == IMAGE


@pytest.mark.parametrize("written", ["PAT1 ", "  PAT1", " PAT1  ", "PAT1\0"])
def test_padding_of_a_patient_id_is_no_part_of_it(written: str) -> None:
    assert identifiers("1.2.3", "1.2.3.4", "1.2.3.4.5", written) == IMAGE


def test_spaces_within_and_letters_count_and_composed_forms_do_not() -> None:
    assert identifiers(patient="A B").patient == "A B"
    assert identifiers(patient="a") != identifiers(patient="A")
    assert identifiers(patient="u\u0308") == identifiers(patient="\u00fc")


@pytest.mark.parametrize("field", ["study", "series", "instance", "patient"])
def test_each_identifier_is_bound(field: str) -> None:
    assert pseudonym(KEY, replace(IMAGE, **{field: "9"})) != pseudonym(KEY, IMAGE)
    assert pseudonym(KEY, replace(IMAGE, **{field: ""})) != pseudonym(KEY, IMAGE)


def test_another_key_gives_another_value_and_wrong_sizes_are_refused() -> None:
    assert pseudonym(bytes(32), IMAGE) != pseudonym(KEY, IMAGE)
    with pytest.raises(ValueError, match="32 bytes"):
        pseudonym(b"short", IMAGE)
    with pytest.raises(ValueError, match="no pseudonym"):
        pseudonym(KEY, Identifiers())


TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)
IMAGES = st.builds(Identifiers, TEXT, TEXT, TEXT, TEXT)


@given(IMAGES, IMAGES)
def test_different_identifiers_give_different_messages(one: Identifiers, other: Identifiers) -> None:
    assert (message(one) == message(other)) == (astuple(one) == astuple(other))


@given(st.text(max_size=12).map(lambda text: text + "\udcff"))
def test_bytes_without_a_character_are_bound_too(patient: str) -> None:
    value = pseudonym(KEY, identifiers(patient=patient))
    assert is_pseudonym(value) and value != pseudonym(KEY, identifiers(patient=patient + "x"))


@given(IMAGES.filter(bool))
def test_every_value_fits_into_tracestate(image: Identifiers) -> None:
    value = pseudonym(KEY, image)
    assert is_pseudonym(value) and len(value) == 43
    assert new_context().with_pseudonym(value).tracestate == f"cuvil={value}"
