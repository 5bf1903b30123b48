"""Captures as the metadata has them, and the definitions that they are made from.

A definition is stored with the secrets of its address hidden; the address itself is sealed beside
it. So everything but the start of the capture works without the key. Definitions of earlier
releases are in clear text until they are sealed.
"""

from __future__ import annotations

import msgspec

from dragoman.captures.addresses import has_secret, without_secrets
from dragoman.captures.definition import Definition, read_definition
from dragoman.cluster.events import Capture, CaptureChanged, CaptureDefined, Event
from dragoman.cluster.metadata import MetadataImage
from dragoman.cluster.sealed import dsn_context
from dragoman.errors import ConfigError
from dragoman.security.access import ANONYMOUS
from dragoman.security.secrets import ClusterKeys


class Owner(msgspec.Struct, frozen=True):
    """The principal that a capture runs as."""

    #: As `KIND:NAME`.
    principal: str = str(ANONYMOUS)
    #: The incarnation of the user; empty for a principal that is no user of the cluster.
    user: str = ""


def stored(
    definition: Definition, owner: Owner, incarnation: str, keys: ClusterKeys
) -> CaptureChanged:
    """The event that stores a capture. Raises `SecretError` if its secrets cannot be sealed."""
    event = CaptureChanged(
        name=definition.name,
        definition=b"",
        principal=owner.principal,
        user=owner.user,
        incarnation=incarnation,
    )
    return _with_definition(event, definition, keys)


def _with_definition(
    event: CaptureChanged, definition: Definition, keys: ClusterKeys
) -> CaptureChanged:
    shown, dsn = definition, None
    if has_secret(definition.dsn):
        shown = msgspec.structs.replace(definition, dsn=without_secrets(definition.dsn))
        dsn = keys.seal(definition.dsn.encode(), dsn_context(event))
    return msgspec.structs.replace(event, definition=msgspec.json.encode(shown), dsn=dsn)


def opened(capture: Capture, keys: ClusterKeys) -> Definition:
    """The definition with its secrets. Raises `ConfigError` for one of a newer release, and if the
    secrets cannot be opened.
    """
    definition = read_definition(capture.definition)
    if isinstance(capture, CaptureDefined) or capture.dsn is None:
        return definition
    dsn = keys.unseal(capture.dsn, dsn_context(capture)).decode()
    return msgspec.structs.replace(definition, dsn=dsn)


def shown(capture: Capture) -> Definition:
    """The definition without secrets. Raises `ConfigError` for one of a newer release."""
    definition = read_definition(capture.definition)
    return msgspec.structs.replace(definition, dsn=without_secrets(definition.dsn))


def owner_of(capture: Capture) -> Owner:
    """Captures of earlier releases run as anyone without a login."""
    if isinstance(capture, CaptureDefined):
        return Owner()
    return Owner(capture.principal, capture.user)


class ClearDefinitions:
    """The definitions of earlier releases, which may have secrets in clear text."""

    def __init__(self, image: MetadataImage, keys: ClusterKeys) -> None:
        self._image = image
        self._keys = keys

    def _found(self) -> list[CaptureDefined]:
        return [each for each in self._image.captures.values() if isinstance(each, CaptureDefined)]

    def count(self) -> int:
        return sum(_is_secret(each) for each in self._found())

    def sealed(self, most: int) -> list[Event]:
        events: list[Event] = []
        for each in self._found()[:most]:
            try:
                definition = read_definition(each.definition)
            except ConfigError:
                # It is sealed as soon as all nodes can read it.
                continue
            empty = CaptureChanged(
                name=each.name,
                definition=b"",
                is_paused=each.is_paused,
                incarnation=each.incarnation,
            )
            events.append(_with_definition(empty, definition, self._keys))
        return events


def _is_secret(capture: CaptureDefined) -> bool:
    try:
        return has_secret(read_definition(capture.definition).dsn)
    except ConfigError:
        return False
