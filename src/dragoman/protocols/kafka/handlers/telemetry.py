"""GetTelemetrySubscriptions (71) and PushTelemetry (72), version 0: metrics of clients (KIP-714).

A node does not collect them. A client gets an id and a subscription without metrics, as from a
Kafka broker without subscriptions, and sends its next request after the interval. Metrics that a
client pushes nevertheless are dropped.
"""

from __future__ import annotations

import uuid

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.session import Call

#: The only subscription.
_SUBSCRIPTION_ID = 0
#: zstd, lz4, gzip and snappy: Kafka's list, in its order of preference.
_COMPRESSION_TYPES = [4, 3, 1, 2]
#: Kafka's defaults: five minutes, and a megabyte.
_PUSH_INTERVAL_MS = 300_000
_TELEMETRY_BYTES_MAX = 1 << 20


def handle_get_subscriptions(call: Call) -> None:
    request = call.decode(m.GetTelemetrySubscriptionsRequest)
    instance = request.client_instance_id
    if instance == m.NO_ID:
        random = call.service.broker.random
        instance = uuid.UUID(int=random.getrandbits(128), version=4).bytes
    call.reply(
        m.GetTelemetrySubscriptionsResponse(
            client_instance_id=instance,
            subscription_id=_SUBSCRIPTION_ID,
            accepted_compression_types=_COMPRESSION_TYPES,
            push_interval_ms=_PUSH_INTERVAL_MS,
            telemetry_max_bytes=_TELEMETRY_BYTES_MAX,
            delta_temporality=True,
            requested_metrics=[],
        )
    )


def handle_push(call: Call) -> None:
    request = call.decode(m.PushTelemetryRequest)
    call.reply(m.PushTelemetryResponse(error_code=_refusal(request)))


def _refusal(request: m.PushTelemetryRequest) -> ErrorCode:
    if request.client_instance_id == m.NO_ID:
        return ErrorCode.INVALID_REQUEST
    if request.subscription_id != _SUBSCRIPTION_ID:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    if request.compression_type not in (0, *_COMPRESSION_TYPES):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if len(request.metrics) > _TELEMETRY_BYTES_MAX:
        return ErrorCode.TELEMETRY_TOO_LARGE
    return ErrorCode.NONE
