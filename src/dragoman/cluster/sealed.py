"""The places of sealed secrets in the metadata: users and captures.

Each secret is sealed for its place, which its context names. When the cluster gets another key, the
secret of each place is sealed anew with the event that replaces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from dragoman.cluster.events import Capture, CaptureChanged, Event, UserChanged
from dragoman.cluster.metadata import MetadataImage
from dragoman.security.secrets import context_of, signing_secret_context
from dragoman.security.users import SealedSecret, User


class Sealed(NamedTuple):
    """A sealed secret and its place."""

    secret: SealedSecret
    owner: User | CaptureChanged

    @property
    def context(self) -> str:
        match self.owner:
            case User():
                return signing_secret_context(self.owner)
            case CaptureChanged():
                return dsn_context(self.owner)

    def replaced(self, secret: SealedSecret) -> Event:
        """The event that puts another secret in this place."""
        match self.owner:
            case User():
                return UserChanged(user=msgspec.structs.replace(self.owner, signing_secret=secret))
            case CaptureChanged():
                return msgspec.structs.replace(self.owner, dsn=secret)


def dsn_context(capture: Capture) -> str:
    """What the address of a captured database is sealed for."""
    return context_of("dsn", capture.name, capture.incarnation)


def sealed_secrets(image: MetadataImage) -> Iterator[Sealed]:
    for user in image.users.values():
        if user.signing_secret is not None:
            yield Sealed(user.signing_secret, user)
    for capture in image.captures.values():
        if isinstance(capture, CaptureChanged) and capture.dsn is not None:
            yield Sealed(capture.dsn, capture)


def sealed_by_key(image: MetadataImage) -> Counter[str]:
    """The number of secrets sealed with each key."""
    return Counter(each.secret.key_id for each in sealed_secrets(image))
