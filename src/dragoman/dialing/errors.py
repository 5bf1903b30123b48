"""What a client of any protocol raises when the other side cannot be reached or does not answer.

    ClientError
      UnreachableError          no connection could be made            retriable
      ConnectionLostError       the connection broke before the reply  retriable
      RequestTimeoutError       no reply within the time-out           retriable
      ClientClosedError         the client was closed

A protocol's own client adds what the server can answer. `retriable` says whether the same call may
succeed later. After a lost connection or a time-out nobody knows whether the server has acted on
the request (`is_ambiguous`).
"""

from __future__ import annotations

from dragoman.errors import DragomanError


class ClientError(DragomanError):
    retriable = False
    #: Whether the broker may have acted on the request although it failed.
    is_ambiguous = False


class UnreachableError(ClientError):
    retriable = True


class ConnectionLostError(ClientError):
    retriable = True
    is_ambiguous = True


class RequestTimeoutError(ClientError):
    retriable = True
    is_ambiguous = True


class ClientClosedError(ClientError): ...


def unreachable(address: str, error: Exception) -> UnreachableError:
    """In the words of all clients. A time-out has no text of its own."""
    if isinstance(error, ConnectionRefusedError):
        reason = "connection refused"
    elif isinstance(error, TimeoutError):
        reason = "no answer"
    else:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return UnreachableError(f"cannot reach {address}: {reason}")
