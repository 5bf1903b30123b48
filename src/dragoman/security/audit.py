"""The audit log: logins, administration and refusals, as one JSON object a line.

    {"time":"2026-01-02T03:04:05.678Z","node":1,"kind":"login","action":"scram-sha-256",
     "result":"failed","principal":"User:alice","host":"10.1.2.3","protocol":"kafka"}

It never has a secret: events consist of names. Every act of administration is written. Logins and
denials can be as frequent as requests, so like ones are sampled: the first few of an interval are
written, further ones are counted, and a line with `count` follows at the end of the interval.

Lines are collected in a bounded queue and written together, without waiting for stable storage. If
the queue is full or the file cannot be written, lines are dropped and counted, and a line says so
when writing succeeds again. The current file is `audit.log`; older ones are `audit.log.1`,
`audit.log.2` and so on, the oldest with the highest number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.limits import (
    AUDIT_LIKE_EVENTS_MAX,
    AUDIT_QUEUED_BYTES_MAX,
    AUDIT_SAMPLE_INTERVAL_S,
    AUDIT_SAMPLE_KINDS_MAX,
    AUDIT_TEXT_CHARS_MAX,
    AUDIT_WRITE_INTERVAL_S,
)
from dragoman.log_limiter import LogLimiter
from dragoman.security.access import Caller, Operation, Resource
from dragoman.world import Clock, Disk, File, Handle, Scheduler, utc_text

#: `login`: an attempt to log in. `administration`: a change that a caller requested. `denial`: a
#: request that no rule allows. `security`: what the node itself noticed or did.
AuditKind: TypeAlias = Literal["login", "administration", "denial", "security"]
#: `audited`: a request that the mode `audit` lets pass and `enforce` would refuse.
AuditResult: TypeAlias = Literal["succeeded", "failed", "denied", "audited"]


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What happened. Texts may come from clients: they are cut and escaped when written."""

    kind: AuditKind
    #: The mechanism of a login, the operation of a denial, the act of administration as in
    #: `user.delete` or `acl.add`.
    action: str
    result: AuditResult
    caller: Caller = Caller()
    #: The protocol of the request, or the name of the listener if that says more.
    protocol: str = ""
    #: `KIND:NAME`.
    resource: str = ""
    #: Further words: the reason of a failure, what was changed.
    detail: str = ""


def login(
    mechanism: str, caller: Caller, protocol: str, *, succeeded: bool, reason: str = ""
) -> AuditEvent:
    """`caller` is the principal that was claimed if the login failed."""
    return AuditEvent(
        kind="login",
        action=mechanism,
        result="succeeded" if succeeded else "failed",
        caller=caller,
        protocol=protocol,
        detail=reason,
    )


def denial(
    caller: Caller,
    operation: Operation,
    resource: Resource,
    name: str,
    *,
    is_enforced: bool,
    protocol: str = "",
) -> AuditEvent:
    return AuditEvent(
        kind="denial",
        action=operation.value,
        result="denied" if is_enforced else "audited",
        caller=caller,
        protocol=protocol,
        resource=f"{resource.value}:{name}",
    )


def administration(
    action: str,
    caller: Caller,
    protocol: str,
    *,
    resource: str = "",
    detail: str = "",
    failure: str = "",
) -> AuditEvent:
    """An act of administration, with the reason if it failed."""
    return AuditEvent(
        kind="administration",
        action=action,
        result="failed" if failure else "succeeded",
        caller=caller,
        protocol=protocol,
        resource=resource,
        detail=failure or detail,
    )


def noticed(action: str, *, detail: str = "", failure: str = "") -> AuditEvent:
    """An event of the node itself, such as a reloaded certificate or a rotated key."""
    return AuditEvent(
        kind="security",
        action=action,
        result="failed" if failure else "succeeded",
        detail=failure or detail,
    )


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    time: str
    node: int
    kind: str
    action: str
    result: str
    principal: str = ""
    host: str = ""
    protocol: str = ""
    resource: str = ""
    detail: str = ""
    #: Like events that were not written one by one.
    count: int = 0


#: The audit log of a node without `audit.log.file`, in its data directory.
AUDIT_FILE: Final = "audit.log"
_log = logging.getLogger("dragoman.audit")
_encoder = msgspec.json.Encoder()
_SAMPLED = ("login", "denial")


class AuditFile(msgspec.Struct, frozen=True, kw_only=True):
    """The place and the bounds of the audit log."""

    disk: Disk
    #: The path of the current file on the disk.
    path: str
    #: The size at which a new file is begun.
    file_bytes: int
    #: The number of files, the current one included.
    files: int


class AuditLog:
    def __init__(self, file: AuditFile, node_id: int, scheduler: Scheduler, clock: Clock) -> None:
        self._writer = _Writer(file)
        self._node_id = node_id
        self._scheduler = scheduler
        self._clock = clock
        self._limiter = LogLimiter(_log, scheduler)
        #: Whether events are written; the composition root replaces it.
        self.is_on: Callable[[], bool] = lambda: False
        self._queue: list[bytes] = []
        self._queued_bytes = 0
        #: Lines dropped since the last write, and since the start.
        self._lost = 0
        self.dropped = 0
        self._timer: Handle | None = None
        #: The events of the interval, by what they have in common: a sample, and how many there
        #: were.
        self._counts: dict[tuple[str, ...], tuple[AuditEvent, int]] = {}
        self._sample_timer: Handle | None = None

    def record(self, event: AuditEvent) -> None:
        """Write an event soon. Never raises, and never waits for the disk."""
        if not self.is_on():
            return
        if event.kind not in _SAMPLED or self._is_sampled(event):
            self._append(event)

    def _is_sampled(self, event: AuditEvent) -> bool:
        """Count an event, and say whether it is one of the first of its kind."""
        if self._sample_timer is None:
            self._sample_timer = self._scheduler.call_later(
                AUDIT_SAMPLE_INTERVAL_S, self._interval_over
            )
        key: tuple[str, ...] = (
            event.kind,
            event.action,
            event.result,
            str(event.caller.principal),
            event.caller.host,
        )
        if key not in self._counts and len(self._counts) >= AUDIT_SAMPLE_KINDS_MAX:
            # Callers that vary their names share one count for each result.
            key = (event.kind, event.result)
            event = AuditEvent(kind=event.kind, action="other", result=event.result)
        sample, count = self._counts.get(key, (event, 0))
        self._counts[key] = sample, count + 1
        return count < AUDIT_LIKE_EVENTS_MAX

    def _interval_over(self) -> None:
        self._sample_timer = None
        counts, self._counts = self._counts, {}
        for event, count in counts.values():
            if count > AUDIT_LIKE_EVENTS_MAX:
                self._append(event, count - AUDIT_LIKE_EVENTS_MAX)

    def _append(self, event: AuditEvent, count: int = 0) -> None:
        caller = event.caller
        line = _Line(
            time=utc_text(self._clock.wall_ms()),
            node=self._node_id,
            kind=event.kind,
            action=_bounded(event.action),
            result=event.result,
            principal="" if event.kind == "security" else _bounded(str(caller.principal)),
            host=_bounded(caller.host),
            protocol=_bounded(event.protocol),
            resource="" if count else _bounded(event.resource),
            detail="" if count else _bounded(event.detail),
            count=count,
        )
        data = _encoder.encode(line) + b"\n"
        if self._queued_bytes + len(data) > AUDIT_QUEUED_BYTES_MAX:
            self._drop(1)
        else:
            self._queue.append(data)
            self._queued_bytes += len(data)
        if self._timer is None:
            self._timer = self._scheduler.call_later(AUDIT_WRITE_INTERVAL_S, self._write)

    def _drop(self, lines: int) -> None:
        self._lost += lines
        self.dropped += lines

    def _write(self) -> None:
        self._timer = None
        lost = self._lost
        if lost:
            self._queue.append(self._loss(lost))
        lines, self._queue, self._queued_bytes = self._queue, [], 0
        try:
            self._writer.write(lines)
            self._lost -= lost
        except OSError as error:
            self._drop(len(lines) - bool(lost))
            self._limiter.warning(
                "the audit log cannot be written: %s; %s lines are lost so far",
                error.strerror or error,
                f"{self.dropped:,}",
            )

    def _loss(self, lines: int) -> bytes:
        line = _Line(
            time=utc_text(self._clock.wall_ms()),
            node=self._node_id,
            kind="security",
            action="audit.lost",
            result="failed",
            detail="lines were dropped: too many at once, or the file could not be written",
            count=lines,
        )
        return _encoder.encode(line) + b"\n"

    def close(self) -> None:
        """Write what is queued or counted, and close the file."""
        for timer in (self._timer, self._sample_timer):
            if timer is not None:
                timer.cancel()
        self._interval_over()
        if self._queue or self._lost:
            self._write()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._writer.close()


class _Writer:
    """The current file, and its place among the older ones."""

    def __init__(self, place: AuditFile) -> None:
        self._place = place
        self._file: File | None = None
        self._size = 0

    def write(self, lines: list[bytes]) -> None:
        """Append all lines or, with an `OSError`, none."""
        data = b"".join(lines)
        try:
            file = self._opened()
            if self._size and self._size + len(data) > self._place.file_bytes:
                self.close()
                self._shift()
                file = self._opened()
            file.write([data], self._size)
        except OSError:
            self._cut()
            self.close()
            raise
        self._size += len(data)

    def _opened(self) -> File:
        if self._file is not None and not self._file.is_linked():
            # An operator has removed it.
            self.close()
        if self._file is None:
            self._file = self._place.disk.open(self._place.path, _mode(self._place))
            self._size = self._file.size()
        return self._file

    def _cut(self) -> None:
        """Remove what a failed write has left, so that the next line begins on its own."""
        if self._file is not None:
            with suppress(OSError):
                self._file.truncate(self._size)

    def _shift(self) -> None:
        """Give every file the next number. The oldest one is replaced, or removed."""
        disk, path, files = self._place.disk, self._place.path, self._place.files
        names = [path, *(f"{path}.{number}" for number in range(1, files))]
        if files == 1:
            disk.remove(path)
        for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
            if disk.exists(newer):
                disk.rename(newer, older)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _mode(place: AuditFile) -> Literal["write", "create"]:
    return "write" if place.disk.exists(place.path) else "create"


def _bounded(text: str) -> str:
    """A text of bounded length that JSON can hold."""
    if len(text) > AUDIT_TEXT_CHARS_MAX:
        text = text[: AUDIT_TEXT_CHARS_MAX - 1] + "…"
    return text.encode("utf-8", "backslashreplace").decode()
