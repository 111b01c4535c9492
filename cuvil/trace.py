"""Which image a computation is about, carried through a pipeline: the W3C trace context of this thread or task.

``bind_dicom`` is what ``cuvil trace inject`` puts around the calls that parse DICOM; engines started afterwards in the
same context find the pseudonym of that image (docs/tracing.md). Nothing here raises because tracing is impossible: a
pipeline computes the same with it and without it, and the logger ``cuvil.trace`` says what is missing, once.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from evidence.sessions.trace_context import TraceContext

Dataset = TypeVar("Dataset")
TRACEPARENT, TRACESTATE = "TRACEPARENT", "TRACESTATE"
"""Environment variables that carry the context to other programs (OpenTelemetry, "Environment Variables as Context
Propagation Carriers")."""
STRICT = "CUVIL_TRACE_STRICT"
"""Environment variable; with a value other than empty or 0 no pseudonym is ever made."""

_logger = logging.getLogger(__name__)
_said: set[str] = set()


@dataclass(frozen=True)
class _Bound:
    """``root``: the trace was begun here for ``study``, so another study begins another one."""

    context: TraceContext
    root: bool = False
    study: str = ""


_current: ContextVar[_Bound | None] = ContextVar("cuvil.trace", default=None)


def bind_dicom(dataset: Dataset, *, strict: bool | None = None) -> Dataset:
    """Bind the parsed DICOM ``dataset`` to the trace of this thread or task, and return it unchanged.

    The trace goes on from the current one: ``accept``, an active OpenTelemetry span, or the variables TRACEPARENT and
    TRACESTATE; without any, each study begins one. In strict mode (``strict``, or CUVIL_TRACE_STRICT) no pseudonym is
    made and no identifier kept. A later call binds its image instead of this one.
    """
    from evidence.sessions.binding import bind
    from evidence.sessions.pseudonym import Identifiers
    from evidence.verifier.errors import VerifierError

    subject = Identifiers()
    try:
        subject = read_identifiers(dataset)
    except Exception as error:  # the object is the caller's, and so is what its methods raise
        _say(f"the identifiers of an image cannot be read ({type(error).__name__}: {error}): it is not bound")
    bound = _base(subject.study)
    try:
        context = bind(_home(), bound.context, subject, _strict() if strict is None else strict)
    except VerifierError as error:
        _say(f"an image is not bound to its trace: {error}")
        context = bound.context.with_pseudonym(None)
    _current.set(_Bound(context, bound.root, subject.study))
    return dataset


def accept(traceparent: str | None, tracestate: str | None = None) -> bool:
    """Go on with the trace of a request's headers; false, and nothing changes, where ``traceparent`` is malformed."""
    from evidence.sessions.trace_context import read_context

    context = read_context(traceparent, tracestate)
    if context is not None:
        _current.set(_Bound(context))
    return context is not None


def current() -> TraceContext | None:
    """The trace context of this thread or task, ``None`` before anything was bound or accepted and outside a trace.

    Within an OpenTelemetry span it is that span's, with the pseudonym of an image that was bound in the same trace.
    """
    bound, span = _current.get(), _active_span()
    if span is not None:
        same = bound is not None and bound.context.trace_id == span.trace_id
        return span.with_pseudonym(bound.context.pseudonym if bound is not None and same else None)
    bound = bound or _incoming()
    return None if bound is None else bound.context


def unbind() -> None:
    """Forget image and trace, where a thread goes on to something else without parsing or accepting anything."""
    _current.set(None)


def headers() -> dict[str, str]:
    """``traceparent`` and, where it has members, ``tracestate``, for a request to another service."""
    context = current()
    if context is None:
        return {}
    state = context.tracestate
    return {"traceparent": context.traceparent, **({"tracestate": state} if state else {})}


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """``variables`` (this process's if absent) with the context in them, for a program that is started: an engine, or
    ``cuvil run``."""
    found = dict(os.environ if variables is None else variables)
    for name in (TRACEPARENT, TRACESTATE):
        found.pop(name, None)  # one of another trace, or malformed: an engine would refuse it
    return found | {name.upper(): value for name, value in headers().items()}


def read_identifiers(dataset: Any) -> Any:
    """The ``Identifiers`` of a pydicom data set, or of anything whose ``get`` takes DICOM keywords.

    Elements that pydicom has not decoded yet stay undecoded, so that the data set is written back byte for byte.
    """
    from evidence.sessions.pseudonym import KEYWORDS, TAGS, identifiers

    raw = getattr(dataset, "get_item", None)
    if raw is None:
        return identifiers(**{field: _text(dataset.get(keyword)) for field, keyword in KEYWORDS.items()})
    return identifiers(**{field: _element(dataset, raw(tag), KEYWORDS[field]) for field, tag in TAGS.items()})


def _element(dataset: Any, element: Any, keyword: str) -> str:
    """The value of one element as text, ``element`` being what pydicom's ``get_item`` gave."""
    value = getattr(element, "value", None)
    if not isinstance(value, bytes):
        return _text(value)
    if value.isascii() and b"\x1b" not in value:
        return value.decode("ascii")
    return _text(_decoded(dataset, keyword))


def _decoded(dataset: Any, keyword: str) -> Any:
    """The value under the data set's character set, decoded in a copy of the two elements it takes."""
    from pydicom.dataset import Dataset as Plain

    names = ("SpecificCharacterSet", keyword)
    probe = Plain({element.tag: element for element in map(dataset.get_item, names) if element is not None})
    implicit, little_endian = dataset.original_encoding
    probe.set_original_encoding(implicit, little_endian, dataset.original_character_set)
    return probe.get(keyword)


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list | tuple) or type(value).__name__ == "MultiValue":
        return "\\".join(map(str, value))
    return str(value)


def _base(study: str) -> _Bound:
    """The trace that an image of ``study`` belongs to."""
    from evidence.sessions.trace_context import new_context

    span = _active_span()
    if span is not None:
        return _Bound(span)
    bound = _current.get() or _incoming()
    if bound is None or (bound.root and bound.study != study):
        return _Bound(new_context(), root=True)
    return bound


def _incoming() -> _Bound | None:
    from evidence.sessions.trace_context import read_context

    context = read_context(os.environ.get(TRACEPARENT), os.environ.get(TRACESTATE))
    return None if context is None else _Bound(context)


def _active_span() -> TraceContext | None:
    """The active span of OpenTelemetry, in a process that uses it."""
    from evidence.sessions.trace_context import read_context

    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    span = api.get_current_span().get_span_context()
    parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
    return read_context(parent, ",".join(f"{key}={value}" for key, value in span.trace_state.items()))


def _home() -> Path:
    from compiler_kernels.toolchain.zig import cuvil_home

    return cuvil_home()


def _strict() -> bool:
    return os.environ.get(STRICT, "0") not in ("", "0")


def _say(sentence: str) -> None:
    """Log ``sentence``, the same one once in a process: an image series would repeat it for every slice."""
    if sentence not in _said:
        _said.add(sentence)
        _logger.warning("%s", sentence)
