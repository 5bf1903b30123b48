"""The node's own log: standard logging, as plain text or as one JSON object a line.

    plain   2026-01-02T03:04:05.678Z INFO dragoman.server listening listener=kafka port=9092
    json    {"ts":"2026-01-02T03:04:05.678Z","level":"info","logger":"dragoman.server",
             "message":"listening","listener":"kafka","port":9092}

Fields are given as `logger.info("listening", extra={"port": 9092})`. A mapping is one field of JSON
and a field for each of its keys in plain text. A line never holds a line break or another control
character that a client chose, except in the traceback of a plain line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, TextIO

import msgspec

from dragoman import limits
from dragoman.limits import DEBUG_LOG_LINES_MAX, LIMITED_LOG_INTERVAL_S

#: The attributes of every log record; all others came by `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_log = logging.getLogger("dragoman.process")
_RESERVED = frozenset({"ts", "level", "logger", "message", "exception"})


def configure(
    line_format: Literal["plain", "json"],
    level: Literal["debug", "info", "warning", "error"],
    stream: TextIO,
) -> None:
    """Send the log of this process to `stream`, replacing any earlier configuration."""
    handler = logging.StreamHandler(stream)
    handler.addFilter(DebugBound())
    handler.setFormatter(JsonFormatter() if line_format == "json" else PlainFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())


def toggle_debug(level: str) -> None:
    """Switch between the level debug and the configured one."""
    root = logging.getLogger()
    chosen = level.upper() if root.level == logging.DEBUG else "DEBUG"
    root.setLevel(chosen)
    # Logged whatever the level is: the operator has to see that the signal arrived.
    _log.log(max(logging.INFO, root.level), "log level changed", extra={"log_level": chosen})


def log_uncaught() -> None:
    """Log what Python would print on stderr: warnings, and errors that no code catches.

    Threads have a hook of their own, `uncaught_in_thread`.
    """
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    sys.unraisablehook = _unraisable


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _log.critical("uncaught exception", exc_info=(kind, error, trace))


def _unraisable(found: sys.UnraisableHookArgs) -> None:
    error = found.exc_value or found.exc_type()
    _log.error(
        "exception that could not be raised",
        exc_info=(found.exc_type, error, found.exc_traceback),
        extra={"where": repr(found.object)},
    )


def uncaught_in_thread(name: str, error: BaseException) -> None:
    """Log the error that ended a thread."""
    _log.error("uncaught exception in a thread", exc_info=error, extra={"thread_name": name})


class DebugBound(logging.Filter):
    """Bounds the lines at the level debug, which tell of every connection and request: clients must
    not be able to fill a disk. The number of lines that were left out is in the next one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._interval = 0.0
        self._count = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.DEBUG:
            return True
        interval = record.created // LIMITED_LOG_INTERVAL_S
        if interval != self._interval:
            self._interval, self._count = interval, 0
        if self._count >= DEBUG_LOG_LINES_MAX:
            self._left_out += 1
            return False
        self._count += 1
        if self._left_out:
            record.left_out = self._left_out
            self._left_out = 0
        return True


class PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        words = [_timestamp(record), record.levelname, record.name, escape(record.getMessage())]
        words += [f"{name}={_plain_value(value)}" for name, value in _flat(_extras(record))]
        line = _cut(" ".join(words))
        exception = _exception(self, record)
        return f"{line}\n{exception}" if exception else line


class JsonFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__()
        self._encoder = msgspec.json.Encoder(enc_hook=repr)

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        fields |= _extras(record)
        exception = _exception(self, record)
        if exception:
            fields["exception"] = _cut(exception)
        return self._encode(fields)

    def _encode(self, fields: dict[str, object]) -> str:
        try:
            return self._encoder.encode(fields).decode()
        except (TypeError, ValueError, RecursionError):
            # A field that JSON cannot hold must not lose the line.
            return self._encoder.encode({name: _portable(fields[name]) for name in fields}).decode()


def _portable(value: object) -> str:
    text = value if isinstance(value, str) else _cut(repr(value))
    return text.encode("utf-8", "backslashreplace").decode()


def escape(text: str) -> str:
    """Text with control characters and line breaks escaped, so that it stays on one line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped_char(char) for char in text)


def _escaped_char(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _extras(record: logging.LogRecord) -> dict[str, object]:
    """Fields given by the caller. A name that every line already has gets a `_` appended."""
    return {
        f"{name}_" if name in _RESERVED else name: _cut(value) if isinstance(value, str) else value
        for name, value in vars(record).items()
        if name not in _STANDARD
    }


def _flat(fields: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The fields of a plain line: a mapping gives one for each of its keys."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from ((escape(str(key)), each) for key, each in value.items())
        else:
            yield name, value


def _plain_value(value: object) -> str:
    text = escape(str(value))
    return f'"{text}"' if " " in text or not text else text


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info:
        return ""
    return formatter.formatException(record.exc_info)


def _cut(text: str) -> str:
    bound = limits.LOG_LINE_CHARS_MAX
    return text if len(text) <= bound else f"{text[:bound]}..."
