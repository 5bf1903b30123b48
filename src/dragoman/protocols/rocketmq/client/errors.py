"""The errors that the RocketMQ client raises when a server refuses a request.

    ClientError
      RocketmqError               any refusal; `number` is RocketMQ's code
        BusyError                 2, 14, 215, 1500                          retriable
        UnsupportedRequestError   3: the server does not support the request
        MessageIllegalError       13
        NoPermissionError         16
        TopicNotFoundError        17
        NotFoundError             22, 208: no such offset, key or message
        SubscriptionError         23, 24, 25: the filter is unknown or not valid
        GroupNotFoundError        26
        InvalidParameterError     29
        GroupOfflineError         206: the group has no connected members

Errors of connections are shared by all clients (`client_core.errors`).
"""

from __future__ import annotations

from typing import Final

from dragoman.client_core.errors import ClientError
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Response


class RocketmqError(ClientError):
    """The server refused a request."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


class BusyError(RocketmqError):
    retriable = True


class UnsupportedRequestError(RocketmqError): ...


class MessageIllegalError(RocketmqError): ...


class NoPermissionError(RocketmqError): ...


class TopicNotFoundError(RocketmqError): ...


class NotFoundError(RocketmqError): ...


class SubscriptionError(RocketmqError): ...


class GroupNotFoundError(RocketmqError): ...


class InvalidParameterError(RocketmqError): ...


class GroupOfflineError(RocketmqError): ...


_CLASSES: Final[dict[int, type[RocketmqError]]] = {
    Response.SYSTEM_BUSY: BusyError,
    Response.REQUEST_CODE_NOT_SUPPORTED: UnsupportedRequestError,
    Response.MESSAGE_ILLEGAL: MessageIllegalError,
    Response.SERVICE_NOT_AVAILABLE: BusyError,
    Response.NO_PERMISSION: NoPermissionError,
    Response.TOPIC_NOT_EXIST: TopicNotFoundError,
    Response.QUERY_NOT_FOUND: NotFoundError,
    Response.SUBSCRIPTION_PARSE_FAILED: SubscriptionError,
    Response.SUBSCRIPTION_NOT_EXIST: SubscriptionError,
    Response.SUBSCRIPTION_NOT_LATEST: SubscriptionError,
    Response.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotFoundError,
    Response.INVALID_PARAMETER: InvalidParameterError,
    Response.CONSUMER_NOT_ONLINE: GroupOfflineError,
    Response.NO_MESSAGE: NotFoundError,
    Response.FLOW_CONTROL: BusyError,
    Response.GO_AWAY: BusyError,
}


#: Brokers of 4.x refuse with the code of any error, and these words.
_DENIALS: Final = (
    "No accessKey is configured",
    "No acl config for",
    "Check signature failed for accessKey",
    "Need admin permission for",
    "No permission for",
    "No default permission for",
)


def refusal(response: Command, address: str) -> RocketmqError:
    try:
        name = Response(response.code).name.lower().replace("_", " ")
    except ValueError:
        name = "unknown code"
    text = f"{address} answered {response.code} ({name})"
    if response.remark:
        text += f": {response.remark}"
        if response.code == Response.SYSTEM_ERROR and any(
            each in response.remark for each in _DENIALS
        ):
            return NoPermissionError(response.code, text)
    return _CLASSES.get(response.code, RocketmqError)(response.code, text)
