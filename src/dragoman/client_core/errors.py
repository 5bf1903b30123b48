"""Errors that clients of all protocols raise when a server cannot be reached or does not answer.

    ClientError
      UnreachableError          no connection could be made            retriable
      ConnectionLostError       the connection broke before the reply  retriable
      RequestTimeoutError       no reply within the time-out           retriable
      ClientClosedError         the client was closed

Each protocol's client adds the errors of its servers' replies. `retriable` says whether the
same call may succeed later. After a lost connection or a time-out the outcome of the request is
unknown (`is_ambiguous`).
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


def unreachable(address: object, error: Exception) -> UnreachableError:
    """The error for a connection that could not be made."""
    if isinstance(error, ConnectionRefusedError):
        reason = "connection refused"
    elif isinstance(error, TimeoutError):
        # A time-out has no text of its own.
        reason = "no answer"
    elif getattr(error, "verify_message", None):
        reason = f"its certificate is refused: {getattr(error, 'verify_message', '')}"
    else:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return UnreachableError(f"cannot reach {address}: {reason}")


def before_sending(lost: ClientError) -> ClientError:
    """The error for a request that was never sent: the server cannot have acted on it."""
    error = type(lost)(str(lost))
    error.is_ambiguous = False
    return error
