"""What the Kafka client raises, as refusals that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dragoman.client.kafka import (
    AccessDeniedError,
    ClientError,
    KafkaError,
    LoginFailedError,
    UnknownTopicError,
)
from dragoman.console.errors import ConsoleError
from dragoman.console.kafka_access import KafkaAccessError
from dragoman.errors import DecodeError, DragomanError


class NoTopicError(ConsoleError):
    code = "topic_not_found"
    status = 404


class DeniedError(ConsoleError):
    code = "access_denied"
    status = 403


class KafkaUnreachableError(ConsoleError):
    code = "kafka_unreachable"
    status = 502


class KafkaFailedError(ConsoleError):
    code = "kafka_failed"
    status = 502


@contextmanager
def refused(*, has_session: bool) -> Iterator[None]:
    """Raises a `ConsoleError` for what the client raises."""
    try:
        yield
    except ConsoleError:
        raise
    except (DragomanError, OSError) as error:
        raise failure_of(error, has_session=has_session) from None


def failure_of(error: Exception, *, has_session: bool) -> ConsoleError:
    match error:
        case ConsoleError():
            return error
        case LoginFailedError() if has_session:
            return KafkaAccessError(f"the login to Kafka's listener was refused: {error}")
        case UnknownTopicError():
            return NoTopicError(str(error))
        case AccessDeniedError() | LoginFailedError():
            remedy = "" if has_session else "; log in as a user who may"
            return DeniedError(f"{error}{remedy}")
        case KafkaError() | DecodeError():
            return KafkaFailedError(str(error))
        case ClientError():
            return KafkaUnreachableError(f"{error}{'' if has_session else _ANONYMOUS}")
        case DragomanError():
            return KafkaFailedError(str(error))
    return KafkaUnreachableError(f"Kafka's listener cannot be reached: {error or 'no answer'}")


#: A listener that wants a login closes the connection of a client without one.
_ANONYMOUS = "; if Kafka's listener wants a login, log in"
