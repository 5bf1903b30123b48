"""Goal: what is listed is what is served, and nothing that switches on what is not there."""

from __future__ import annotations

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.handlers.session import HANDLERS
from worlds.broker import Wire

TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


def test_everything_is_served_and_everything_but_telemetry_is_listed(wire: Wire) -> None:
    request = m.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    listed = {each.api_key for each in wire.ask(request, 4, m.ApiVersionsResponse).api_keys}
    assert set(HANDLERS) == set(ApiKey)
    assert listed == set(ApiKey) - TELEMETRY
