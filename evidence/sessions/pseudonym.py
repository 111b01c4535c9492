"""Keyed pseudonyms of DICOM images for ``tracestate``: one HMAC over the four identifiers of an instance.

The value is ``base64url(HMAC-SHA-256(key, message))`` without padding (RFC 2104, RFC 4648 section 5): 43 characters,
which a member of ``tracestate`` may hold; padding it may not. The message is ``cuvil-dicom-pseudonym/1``, then for each
identifier in the order of ``TAGS`` its tag (group and element, 4 bytes), the length of its value (4 bytes) and the
value in UTF-8; numbers are big-endian. With the lengths in it, no two different sets of values give one message.

One HMAC over all four, and not one for each, so that whoever sees the header can tell that two messages speak of the
same image, and nothing more: neither a patient's studies nor a study's images can be joined without the local store or
the key and the identifiers (docs/tracing.md).
"""

from __future__ import annotations

import base64
import hmac
import re
import unicodedata
from dataclasses import dataclass

LABEL = b"cuvil-dicom-pseudonym/1"
KEY_BYTES = 32
LENGTH = 43
"""Characters of a pseudonym."""
TAGS = {
    "study": 0x0020000D,
    "series": 0x0020000E,
    "instance": 0x00080018,
    "patient": 0x00100020,
}
"""The identifiers by field of ``Identifiers``: StudyInstanceUID, SeriesInstanceUID, SOPInstanceUID, PatientID."""
KEYWORDS = {
    "study": "StudyInstanceUID",
    "series": "SeriesInstanceUID",
    "instance": "SOPInstanceUID",
    "patient": "PatientID",
}
"""Their keywords in DICOM PS3.6."""
_TEXT = re.compile(rf"[A-Za-z0-9_-]{{{LENGTH}}}")


@dataclass(frozen=True)
class Identifiers:
    """The four identifiers of one DICOM instance in their canonical form; empty where an image has none."""

    study: str = ""
    series: str = ""
    instance: str = ""
    patient: str = ""

    def __bool__(self) -> bool:
        """Whether there is any to speak of."""
        return any((self.study, self.series, self.instance, self.patient))


def identifiers(study: str = "", series: str = "", instance: str = "", patient: str = "") -> Identifiers:
    """The values of an image as it holds them, brought to canonical form by their VR (DICOM PS3.5, 6.2 and 9.1).

    UI: trailing NUL, and the trailing space that some writers pad with, are no part of it. LO: leading and trailing
    spaces (and NUL) are insignificant; Unicode is in NFC, so that one id gives one pseudonym in any character set.
    """
    return Identifiers(canonical_uid(study), canonical_uid(series), canonical_uid(instance), canonical_id(patient))


def canonical_uid(value: str) -> str:
    """A value of VR UI without its padding."""
    return value.rstrip("\0 ")


def canonical_id(value: str) -> str:
    """A value of VR LO without its padding, in NFC."""
    return unicodedata.normalize("NFC", value.strip("\0 "))


def pseudonym(key: bytes, subject: Identifiers) -> str:
    """The pseudonym of ``subject`` under ``key`` (32 bytes): 43 characters. ``ValueError`` for a key of another size or
    for a subject without any identifier."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key of pseudonyms has {KEY_BYTES} bytes, not {len(key)}")
    if not subject:
        raise ValueError("an image without identifiers has no pseudonym")
    return base64.urlsafe_b64encode(hmac.digest(key, message(subject), "sha256")).rstrip(b"=").decode()


def message(subject: Identifiers) -> bytes:
    """What is authenticated: label, then tag, length and value of each identifier."""
    parts = [LABEL]
    for field, tag in TAGS.items():
        # Bytes that no character set explains come as surrogates; they are part of the identifier all the same.
        value = str(getattr(subject, field)).encode("utf-8", "surrogatepass")
        parts += [tag.to_bytes(4, "big"), len(value).to_bytes(4, "big"), value]
    return b"".join(parts)


def is_pseudonym(text: str) -> bool:
    """Whether ``text`` has the form of one."""
    return bool(_TEXT.fullmatch(text))
