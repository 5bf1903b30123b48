"""What a request uses of its client's quotas, as in Kafka: bytes of Produce requests and of Fetch
responses, time on the loop, and partitions created or deleted.

A client that exceeds a quota gets its reply at once, with the time for which its connection is not
read. The response to a Fetch has no records then, and these do not count. Time counts while a
handler runs, not while its request waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from dragoman.broker.throttles import Limit
from dragoman.protocols.kafka.messages import FetchResponse, Message, ProduceResponse

if TYPE_CHECKING:
    from dragoman.protocols.kafka.handlers.session import Call

AnyMessage = TypeVar("AnyMessage", bound=Message)


def metered(call: Call, message: AnyMessage) -> AnyMessage:
    """Count what a request has used. Returns its reply, with the time of throttling."""
    throttles, caller, client_id = call.service.broker.throttles, call.caller, call.client_id
    seconds = max(call.throttled_s, time_used(call))
    if isinstance(message, ProduceResponse):
        size = len(call.request.frame)
        produced_s = throttles.bytes_s(Limit.PRODUCED, caller, client_id, size)
        seconds = max(seconds, produced_s)
    elif isinstance(message, FetchResponse):
        size = _size(message)
        consumed_s = throttles.bytes_s(Limit.CONSUMED, caller, client_id, size)
        seconds = max(seconds, consumed_s)
        if seconds and size:
            throttles.give_back(Limit.CONSUMED, caller, client_id, size)
            message = msgspec.structs.replace(message, responses=[])
    if seconds <= 0:
        return message
    call.session.throttle(seconds)
    if "throttle_time_ms" not in message.__struct_fields__:
        return message
    return msgspec.structs.replace(message, throttle_time_ms=max(1, round(seconds * 1000)))


def time_used(call: Call) -> float:
    """Count the time since the handler was called, once. Returns for how long to throttle."""
    begun_at, call.begun_at = call.begun_at, None
    if begun_at is None:
        return 0.0
    broker = call.service.broker
    used_s = broker.clock.monotonic() - begun_at
    return broker.throttles.request_s(call.caller, call.client_id, used_s)


def _size(response: FetchResponse) -> int:
    """The bytes of all records."""
    size = 0
    for topic in response.responses:
        for partition in topic.partitions:
            records = partition.records
            if isinstance(records, tuple):
                size += sum(map(len, records))
            elif records is not None:
                size += len(records)
    return size
