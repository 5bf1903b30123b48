"""Goal: codes have their numbers and texts, and every domain error becomes one of them."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from dragoman.errors import (
    AuthError,
    CorruptionError,
    DecodeError,
    DiskFullError,
    DragomanError,
    LogStoppedError,
)
from dragoman.protocols.kafka.errors import (
    RETRIABLE,
    ErrorCode,
    UnsupportedVersionError,
    error_text,
)
from dragoman.protocols.kafka.handlers.refusals import wire_code, wire_text


def test_codes_are_contiguous_and_named_as_elsewhere() -> None:
    assert sorted(ErrorCode) == list(range(-1, 134))
    for theirs in KioErrorCode:
        assert ErrorCode(theirs.value).name == theirs.name.upper()


def test_retriable_codes_agree() -> None:
    assert {int(code) for code in RETRIABLE} == {c.value for c in KioErrorCode if c.retriable}


def test_every_code_has_a_text_of_its_own() -> None:
    texts = {error_text(code) for code in ErrorCode}
    assert len(texts) == len(ErrorCode)
    assert all(text.endswith(".") for text in texts)


def test_unknown_code_has_a_text_too() -> None:
    assert error_text(999) == "Unknown error code 999."


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DecodeError("x"), ErrorCode.INVALID_REQUEST),
        (UnsupportedVersionError("x"), ErrorCode.UNSUPPORTED_VERSION),
        (DiskFullError("x"), ErrorCode.KAFKA_STORAGE_ERROR),
        (LogStoppedError("x"), ErrorCode.KAFKA_STORAGE_ERROR),
        (CorruptionError("f", 1, "x"), ErrorCode.CORRUPT_MESSAGE),
        (AuthError("x"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (DragomanError("x"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (None, ErrorCode.NONE),
    ],
)
def test_domain_errors_become_codes(error: DragomanError | None, code: ErrorCode) -> None:
    assert wire_code(error) is code
    assert wire_text(error) == (None if error is None else str(error))
