"""Acts of administration, each of which reaches the audit log with its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from dragoman.errors import DragomanError
from dragoman.limits import ADMINISTRATION_DETAILS_MAX
from dragoman.security.access import Caller
from dragoman.security.audit import AuditLog, administration


class Actor(msgspec.Struct, frozen=True):
    """Who administers, and by which protocol."""

    caller: Caller
    protocol: str


@contextmanager
def recorded(
    audit: AuditLog, action: str, actor: Actor, resource: str, details: Sequence[str] = ("",)
) -> Iterator[None]:
    """Record the act that the block performs: once for each detail, or once with the error that the
    block raises. The block may add details.
    """
    try:
        yield
    except DragomanError as error:
        note(audit, action, actor, resource, error=error)
        raise
    for detail in details[:ADMINISTRATION_DETAILS_MAX]:
        note(audit, action, actor, resource, detail)
    further = len(details) - ADMINISTRATION_DETAILS_MAX
    if further > 0:
        note(audit, action, actor, resource, f"{further} further ones")


class Act(msgspec.Struct, frozen=True):
    """One of several acts that a request asks for."""

    resource: str
    detail: str
    #: None: it succeeded.
    error: DragomanError | None


def note_each(audit: AuditLog, action: str, actor: Actor, acts: Sequence[Act]) -> None:
    """Record the acts of one request, and how many more there were."""
    for each in acts[:ADMINISTRATION_DETAILS_MAX]:
        note(audit, action, actor, each.resource, each.detail, each.error)
    further = acts[ADMINISTRATION_DETAILS_MAX:]
    failed = sum(each.error is not None for each in further)
    if further:
        note(audit, action, actor, "", f"{len(further)} further ones, of which {failed} failed")


def config_changes(
    before: Mapping[str, str],
    after: Mapping[str, str],
    is_shown: Callable[[str], bool] = lambda _key: True,
) -> Iterator[str]:
    """A change of a configuration, as details. `is_shown` says which keys have their values."""
    for key, text in sorted(after.items()):
        if before.get(key) != text:
            yield f"{key}={text}" if is_shown(key) else f"{key} set"
    for key in sorted(before.keys() - after.keys()):
        yield f"{key} unset"


def note(
    audit: AuditLog,
    action: str,
    actor: Actor,
    resource: str,
    detail: str = "",
    error: DragomanError | None = None,
) -> None:
    """Record one act, with the error that it ended with, if any."""
    about = f"{detail}: " if detail else ""
    audit.record(
        administration(
            action,
            actor.caller,
            actor.protocol,
            resource=resource,
            detail=detail,
            failure="" if error is None else f"{about}{error}",
        )
    )
