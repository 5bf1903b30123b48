"""What the process of a node logs about its start and its end.

    starting                            version, interpreter, directory, node
    settings differ from the defaults   each with its value
    listening                           once for each listener
    ready                               how long it took, and what is there
    stopping                            why
    stopped                             how long it took, and the exit status

What happens in between is logged where it happens; `docs/reference/logs.md` has the lines. Settings
hold no secrets, only references to them (`config/settings.py`), so all of them are shown.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable

import msgspec

from dragoman import __version__
from dragoman.config.keys import Source, Value, format_value
from dragoman.config.listeners import ListenerSecurity
from dragoman.config.settings import NODE_KEYS, Settings

log = logging.getLogger("dragoman.process")


class ListenerLine(msgspec.Struct, frozen=True):
    """A listener as its line shows it."""

    name: str
    address: str
    advertised: str
    security: ListenerSecurity


class Contents(msgspec.Struct, frozen=True):
    """What a node has when it is ready."""

    cluster_id: str
    feature_level: int
    topics: int
    partitions: int


def starting(settings: Settings) -> None:
    version = sys.version_info
    fields = {
        "version": __version__,
        "python": f"{version.major}.{version.minor}.{version.micro}",
        "pid": os.getpid(),
        "data": settings.data,
        "node": settings.node_id,
        "durability": settings.durability,
        "quorum": settings.metadata_quorum,
    }
    log.info("starting", extra=fields)
    changed = settings_that_differ(settings)
    if changed:
        log.info("settings differ from the defaults", extra={"settings": changed})


def settings_that_differ(settings: Settings) -> dict[str, str]:
    """The text of the settings that do not have their default."""
    found: dict[str, Value] = {}
    for name in NODE_KEYS:
        value = settings.value(name)
        (_, default) = next(each for each in settings.origins(name) if each[0] is Source.DEFAULT)
        if value != default:
            found[name] = value
    found |= dict(settings.per_listener)
    return {name: format_value(value) for name, value in found.items()}


def listening(listeners: Iterable[ListenerLine]) -> None:
    for each in listeners:
        fields = {
            "listener": each.name,
            "address": each.address,
            "advertised": each.advertised,
            "tls": each.security.tls,
            "authentication": each.security.authentication,
        }
        log.info("listening", extra=fields)


def ready(contents: Contents, seconds: float) -> None:
    fields = {
        "ms": _ms(seconds),
        "cluster": contents.cluster_id,
        "feature_level": contents.feature_level,
        "topics": contents.topics,
        "partitions": contents.partitions,
    }
    log.info("ready", extra=fields)


def stopping(why: str) -> None:
    log.info("stopping", extra={"why": why})


def stopped(seconds: float, uptime_s: float, status: int) -> None:
    fields = {"ms": _ms(seconds), "uptime_s": round(uptime_s), "status": status}
    log.info("stopped", extra=fields)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
