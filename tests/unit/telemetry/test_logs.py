"""Log lines in both forms: fields, extras, exceptions, hostile text, and the bound of a line."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from dragoman import limits
from dragoman.telemetry.logs import DebugBound, configure, escape, toggle_debug

LOGGER = logging.getLogger("dragoman.example")


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(line_format, level="info") -> io.StringIO:
    stream = io.StringIO()
    configure(line_format, level, stream)
    return stream


def test_plain_line_has_time_level_logger_message_and_extras() -> None:
    stream = lines("plain")
    LOGGER.info("opened %s", "it", extra={"port": 9092, "path": "a b", "empty": ""})
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO dragoman\.example opened it"
        r' port=9092 path="a b" empty=""\n',
        stream.getvalue(),
    )


def test_json_line_has_the_same_as_fields() -> None:
    stream = lines("json")
    LOGGER.warning("opened %s", "it", extra={"port": 9092, "names": ["a", "b"]})
    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields.pop("ts"))
    assert fields == {
        "level": "warning",
        "logger": "dragoman.example",
        "message": "opened it",
        "port": 9092,
        "names": ["a", "b"],
    }


def test_time_is_that_of_the_record_in_utc() -> None:
    stream = lines("json")
    record = logging.makeLogRecord(
        {"name": "x", "levelname": "INFO", "levelno": 20, "msg": "m", "created": 1_700_000_000.0624}
    )
    logging.getLogger().handle(record)
    assert json.loads(stream.getvalue())["ts"] == "2023-11-14T22:13:20.062Z"


def test_extra_cannot_hide_a_field_of_every_line() -> None:
    stream = lines("json")
    LOGGER.error("real", extra={"level": "fake", "ts": 0})
    fields = json.loads(stream.getvalue())
    assert (fields["level"], fields["level_"], fields["ts_"]) == ("error", "fake", 0)


@pytest.mark.parametrize("line_format", ["plain", "json"])
def test_client_text_cannot_start_a_line_or_move_the_cursor(line_format: str) -> None:
    stream = lines(line_format)
    LOGGER.info("topic %s", "a\nb\r\x1b[2J\u2028", extra={"client": "x\ny"})
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert "\r" not in text
    assert "\x1b" not in text
    # To a reader of JSON lines it is an ordinary character.
    assert line_format == "json" or "\u2028" not in text


@pytest.mark.parametrize("line_format", ["plain", "json"])
def test_exception_is_shown(line_format: str) -> None:
    stream = lines(line_format)
    try:
        raise KeyError("lost")
    except KeyError:
        LOGGER.exception("failed")
    text = stream.getvalue()
    assert "Traceback" in text
    assert "KeyError: 'lost'" in text
    if line_format == "json":
        assert "KeyError" in json.loads(text)["exception"]


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"\xff", "\ud800", 10**30, {("a", "b"): 1}, float("nan")]
)
def test_value_that_json_lacks_does_not_lose_the_line(value: object) -> None:
    stream = lines("json")
    LOGGER.info("kept", extra={"value": value})
    fields = json.loads(stream.getvalue())
    assert fields["message"] == "kept"
    assert "value" in fields


def test_value_that_contains_itself_does_not_lose_the_line() -> None:
    stream = lines("json")
    loop: list[object] = []
    loop.append(loop)
    LOGGER.info("kept", extra={"value": loop})
    assert json.loads(stream.getvalue())["message"] == "kept"


@pytest.mark.parametrize("line_format", ["plain", "json"])
def test_long_text_is_cut(line_format: str) -> None:
    stream = lines(line_format)
    LOGGER.info("x" * 1_000_000, extra={"value": "y" * 1_000_000})
    assert len(stream.getvalue()) < 2 * limits.LOG_LINE_CHARS_MAX + 1000


def test_level_is_obeyed() -> None:
    stream = lines("plain", "warning")
    LOGGER.info("quiet")
    LOGGER.warning("loud")
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == ["loud"]


def test_configuring_again_replaces() -> None:
    first, second = lines("plain"), lines("plain")
    LOGGER.info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_escape_leaves_printable_text_alone() -> None:
    assert escape("Straße 東京") == "Straße 東京"
    assert escape("a\tb\x00") == "a\\tb\\x00"


def test_level_is_toggled_between_debug_and_the_configured_one() -> None:
    stream = lines("plain", "warning")
    LOGGER.debug("one")
    toggle_debug("warning")
    LOGGER.debug("two")
    toggle_debug("warning")
    LOGGER.debug("three")
    found = [line.split(" ", 3)[3] for line in stream.getvalue().splitlines()]
    assert found == [
        "log level changed log_level=DEBUG",
        "two",
        "log level changed log_level=WARNING",
    ]


def test_debug_lines_are_bounded_and_counted() -> None:
    bound = DebugBound()

    def passes(at: float, level: int = logging.DEBUG) -> logging.LogRecord | None:
        record = logging.makeLogRecord({"levelno": level, "created": at})
        return record if bound.filter(record) else None

    first = [passes(100.0) for _ in range(limits.DEBUG_LOG_LINES_MAX + 7)]
    assert sum(each is not None for each in first) == limits.DEBUG_LOG_LINES_MAX
    assert passes(101.0, logging.INFO) is not None
    after = passes(100.0 + limits.LIMITED_LOG_INTERVAL_S)
    assert after is not None
    assert vars(after)["left_out"] == 7
    again = passes(100.0 + limits.LIMITED_LOG_INTERVAL_S)
    assert again is not None
    assert "left_out" not in vars(again)


def test_mapping_is_one_field_of_json_and_many_of_a_plain_line() -> None:
    settings = {"a.b": 1, "c": "x y"}
    stream = lines("json")
    LOGGER.info("set", extra={"settings": settings})
    assert json.loads(stream.getvalue())["settings"] == settings
    stream = lines("plain")
    LOGGER.info("set", extra={"settings": settings})
    assert stream.getvalue().endswith(' set a.b=1 c="x y"\n')
