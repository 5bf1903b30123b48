"""Errors of the server's replies. `client_core.errors` has those of connections.

ClientError
  RefusedError              ERR: `reason` is the server's text
    NotLeaderError          every node says that another one leads     retriable
  AlreadySubscribedError    a connection has one subscription to a topic
"""

from __future__ import annotations

from dragoman.client_core.errors import ClientError
from dragoman.protocols.minibroker.errors import NOT_LEADER


class RefusedError(ClientError):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotLeaderError(RefusedError):
    retriable = True


class AlreadySubscribedError(ClientError): ...


def refused(reason: str) -> RefusedError:
    return NotLeaderError(reason) if NOT_LEADER in reason else RefusedError(reason)
