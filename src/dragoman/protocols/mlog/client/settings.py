"""The settings of an mlog client."""

from __future__ import annotations

from dragoman.client_core.settings import RetrySettings, require_positive_numbers
from dragoman.protocols.mlog.constants import Encoding


class ClientSettings(RetrySettings, frozen=True, kw_only=True):
    """Times are in seconds. Servers may take up to 30 s for a reply."""

    #: JSON is what every server understands.
    encoding: Encoding = Encoding.JSON
    #: How long a topic that no server knows is looked for: a new topic may reach nodes late.
    missing_topic_timeout_s: float = 1.0
    #: Pause of a consumer that has read everything, as in the original.
    poll_interval_s: float = 0.5
    #: Whether records are sent again when the connection broke before the reply. They may then be
    #: there twice; without it, they may be there although an error was raised.
    repeats_produce: bool = True
    in_flight_max: int = 128

    def __post_init__(self) -> None:
        require_positive_numbers(self)
