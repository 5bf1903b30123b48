"""Settings that change while a node runs: a layer of values over those it was started with.

A cluster has one layer for all of its nodes and one for each node; the node's own wins. A layer is
stored as text, like a topic's overrides, and only holds keys of `DYNAMIC_KEYS`. What else is stored
with it is no setting (`inert.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman.config.inert import is_started_with
from dragoman.config.keys import Source, Value, near_match
from dragoman.config.settings import (
    DYNAMIC_KEYS,
    NODE_KEYS,
    Overlay,
    Settings,
    check_consistent,
)
from dragoman.errors import ConfigError


class ReadOnlyKeyError(ConfigError):
    """The key exists, but only counts when the node is started."""


def with_changes(settings: Settings, source: Source, changes: Mapping[str, str]) -> Settings:
    """The settings with a layer over them; the same ones when the layer is empty.

    Raises `ReadOnlyKeyError`, and `ConfigError` for unknown keys and bad or contradicting values.
    """
    if not changes:
        return settings
    values = dict(_read(name, text) for name, text in changes.items())
    overlay = Overlay(source=source, keys=frozenset(changes), below=settings)
    changed = msgspec.structs.replace(settings, **values, overlay=overlay)
    check_consistent(changed)
    return changed


def require_dynamic(name: str) -> None:
    """Raises `ReadOnlyKeyError`, or `ConfigError` for a key that does not exist."""
    if is_started_with(name):
        raise ReadOnlyKeyError(f"{name} can only be set when the node is started")
    if name not in NODE_KEYS:
        raise ConfigError(f"unknown key {name!r}{near_match(name, DYNAMIC_KEYS)}")
    if name not in DYNAMIC_KEYS:
        raise ReadOnlyKeyError(f"{name} can only be set when the node is started")


def _read(name: str, text: str) -> tuple[str, Value]:
    require_dynamic(name)
    key = NODE_KEYS[name]
    return key.attribute, key.read(text)
