"""Goal: a request for telemetry subscriptions is answered with none."""

from __future__ import annotations

import pytest

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from worlds.broker import Wire

CLIENT = bytes(range(16))


def subscribe(wire: Wire, client: bytes = m.NO_ID) -> m.GetTelemetrySubscriptionsResponse:
    request = m.GetTelemetrySubscriptionsRequest(client_instance_id=client)
    return wire.ask(request, 0, m.GetTelemetrySubscriptionsResponse)


def test_clients_get_identities_and_a_subscription_without_metrics(wire: Wire) -> None:
    one, other = subscribe(wire), subscribe(wire)
    assert one.error_code == 0
    assert m.NO_ID != one.client_instance_id != other.client_instance_id
    assert (one.requested_metrics, one.push_interval_ms) == ([], 300_000)
    assert subscribe(wire, CLIENT).client_instance_id == CLIENT


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"terminating": True}, ErrorCode.NONE),
        ({"compression_type": 4}, ErrorCode.NONE),
        ({"client_instance_id": m.NO_ID}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 7}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes((1 << 20) + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_what_is_pushed_is_dropped_or_refused(
    wire: Wire, changes: dict[str, object], code: ErrorCode
) -> None:
    fields = {"client_instance_id": CLIENT, "subscription_id": 0, "metrics": b"whatever"}
    request = m.PushTelemetryRequest(**{**fields, **changes})  # type: ignore[arg-type]
    assert wire.ask(request, 0, m.PushTelemetryResponse).error_code == code
