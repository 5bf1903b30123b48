"""The settings of a Cursus client."""

from __future__ import annotations

from dragoman.client_core.settings import RetrySettings

DEFAULT_PORT = 9000


class CursusSettings(RetrySettings, frozen=True, kw_only=True):
    """Times are in seconds."""

    connect_timeout_s: float = 10.0
    #: How batches are compressed: `none`, or a name of `dragoman.client.cursus.register`.
    compression: str = "none"
