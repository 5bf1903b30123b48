"""Goal: ApiVersions, FindCoordinator and InitProducerId, and the numbers refusals become."""

from __future__ import annotations

import inspect
import struct
from importlib import import_module

import pytest

from dragoman.broker import errors as broker_errors
from dragoman.errors import BrokerError, CorruptionError, DiskFullError, OffsetOutOfRangeError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ACCEPTED_VERSIONS, UNLISTED_KEYS, ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.service import REQUESTS
from dragoman.protocols.kafka.handlers.session import HANDLERS
from worlds.broker import Wire, World

LISTED = set(HANDLERS) - UNLISTED_KEYS

# ---- ApiVersions


@pytest.mark.parametrize("version", range(5))
def test_only_requests_with_a_handler_are_listed(wire: Wire, version: int) -> None:
    name = "client-1.0" if version >= 3 else ""
    request = m.ApiVersionsRequest(client_software_name=name, client_software_version=name)
    response = wire.ask(request, version, m.ApiVersionsResponse)
    listed = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert response.error_code == 0
    assert set(listed) == LISTED
    # From 0, or old librdkafka would not compress; what it then sends is 3 or later.
    assert listed[ApiKey.PRODUCE] == (0, 13)
    assert listed[ApiKey.FETCH] == (4, 17)
    for key in set(listed) - {ApiKey.PRODUCE}:
        accepted = ACCEPTED_VERSIONS[ApiKey(key)]
        assert listed[key] == (accepted.low, accepted.high)


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_unknown_version_is_answered_in_the_layout_of_version_0(
    world: World, wire: Wire, version: int
) -> None:
    frame = struct.pack(">hhih", 18, version, 77, -1) + b"whatever"
    wire.feed(struct.pack(">i", len(frame)) + frame)
    world.settle()
    assert not wire.is_closed
    size, correlation_id, code, count = struct.unpack_from(">iihi", wire.transport.sent)
    assert (correlation_id, code, count) == (77, 35, len(LISTED))
    # Six bytes to an entry: no tags and no compact lengths.
    assert size == 4 + 2 + 4 + 6 * count == len(wire.transport.sent) - 4
    wire.transport.sent.clear()
    wire.send(m.ApiVersionsRequest(), 0)
    world.settle()
    assert wire.transport.sent


@pytest.mark.parametrize("version", [3, 4])
def test_reply_header_has_no_tags_at_any_version(world: World, wire: Wire, version: int) -> None:
    request = m.ApiVersionsRequest(client_software_name="c", client_software_version="1")
    wire.send(request, version)
    world.settle()
    _, _, code, count = struct.unpack_from(">iihB", wire.transport.sent)
    assert (code, count) == (0, len(LISTED) + 1)


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "ä", "a/b", "a" * 200 + "."])
def test_odd_client_names_are_answered_with_an_error_and_not_closed(wire: Wire, name: str) -> None:
    for software, release in ((name, "1"), ("c", name)):
        request = m.ApiVersionsRequest(
            client_software_name=software, client_software_version=release
        )
        response = wire.ask(request, 3, m.ApiVersionsResponse)
        assert response.error_code == ErrorCode.INVALID_REQUEST
    assert not wire.is_closed


# ---- FindCoordinator


@pytest.mark.parametrize("version", range(7))
def test_this_node_coordinates_everything(wire: Wire, version: int) -> None:
    for key_type in (0, 1) if version else (0,):
        if version < 4:
            request = m.FindCoordinatorRequest(key="g", key_type=key_type)
        else:
            request = m.FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=key_type)
        response = wire.ask(request, version, m.FindCoordinatorResponse)
        found = response.coordinators if version >= 4 else [response]
        assert len(found) == (2 if version >= 4 else 1)
        for each in found:
            where = (each.error_code, each.node_id, each.host, each.port)
            assert where == (0, 1, "broker.example", 9092)


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_unknown_kind_of_coordinator_is_refused(wire: Wire, version: int) -> None:
    keys = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
    response = wire.ask(
        m.FindCoordinatorRequest(key_type=7, **keys), version, m.FindCoordinatorResponse
    )
    found = response.coordinators[0] if version >= 4 else response
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)


# ---- InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_idempotent_producer_gets_a_new_id(wire: Wire, version: int) -> None:
    request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    ids = [wire.ask(request, version, m.InitProducerIdResponse) for _ in range(3)]
    assert [each.error_code for each in ids] == [0, 0, 0]
    assert len({each.producer_id for each in ids}) == 3
    assert all(each.producer_id >= 0 and each.producer_epoch == 0 for each in ids)


def test_ids_asked_for_in_one_turn_differ(world: World, wire: Wire) -> None:
    for _ in range(5):
        wire.send(m.InitProducerIdRequest(transactional_id=None), 4)
    world.settle()
    ids = {reply.message.producer_id for reply in wire.replies()}  # type: ignore[attr-defined]
    assert len(ids) == 5


def test_empty_transactional_id_is_refused(wire: Wire) -> None:
    response = wire.ask(m.InitProducerIdRequest(transactional_id=""), 4, m.InitProducerIdResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert (response.producer_id, response.producer_epoch) == (-1, -1)


def test_stopped_log_refuses_ids(world: World, wire: Wire) -> None:
    world.store.fail(OSError(5, "gone"))
    response = wire.ask(m.InitProducerIdRequest(transactional_id=None), 4, m.InitProducerIdResponse)
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# ---- refusals


def test_every_reason_of_the_broker_has_a_number_of_its_own() -> None:
    for _, kind in inspect.getmembers(broker_errors, inspect.isclass):
        if kind is not BrokerError and issubclass(kind, BrokerError):
            # Without its arguments: some reasons carry more than a text.
            assert wire_code(kind.__new__(kind)) not in (
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_SERVER_ERROR,
            ), kind


def test_errors_of_the_log() -> None:
    assert wire_code(OffsetOutOfRangeError("x")) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert wire_code(DiskFullError("x")) == ErrorCode.KAFKA_STORAGE_ERROR
    assert wire_code(CorruptionError("p", 0, "x")) == ErrorCode.CORRUPT_MESSAGE


# ---- the table of handlers


@pytest.mark.parametrize(("key", "place"), REQUESTS.items(), ids=str)
def test_every_place_of_a_handler_has_one(key: ApiKey, place: str) -> None:
    module, _, function = place.partition(".")
    handlers = import_module(f"dragoman.protocols.kafka.handlers.{module}")
    assert list(inspect.signature(getattr(handlers, function)).parameters) == ["call"]


def test_handler_is_loaded_once(wire: Wire) -> None:
    wire.ask(m.FindCoordinatorRequest(key="g"), 1, m.FindCoordinatorResponse)
    loaded = HANDLERS[ApiKey.FIND_COORDINATOR]
    assert loaded.__module__ == "dragoman.protocols.kafka.handlers.cluster"
    wire.ask(m.FindCoordinatorRequest(key="g"), 1, m.FindCoordinatorResponse)
    assert HANDLERS[ApiKey.FIND_COORDINATOR] is loaded
