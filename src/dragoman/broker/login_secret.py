"""The secret from which the logins of unknown users get their salts (`security/logins.py`)."""

from __future__ import annotations

from dragoman.cluster.events import CaptureChanged, Event, LoginSecretSet, UserChanged
from dragoman.cluster.metadata import MetadataImage
from dragoman.limits import LOGIN_SECRET_BYTES
from dragoman.world import Random


def with_login_secret(events: list[Event], image: MetadataImage, random: Random) -> list[Event]:
    """The events, with a login secret before the first user or capture. Without one, clients could
    compute what the login of an unknown user looks like, and know the others by the difference.
    """
    if image.login_secret or not any(
        isinstance(each, UserChanged | CaptureChanged) for each in events
    ):
        return events
    return [LoginSecretSet(secret=random.randbytes(LOGIN_SECRET_BYTES)), *events]
