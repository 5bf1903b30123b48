"""Goal: the server answers every captured request with the captured bytes.

Method: the exchanges of the specification's table, section 13, in its order where they build on
each other, against a broker in memory.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dragoman.config.settings import Settings
from worlds.broker import World
from worlds.minibroker import Peer, service_of

PUB_HELLO = "000000160100066576656e7473000000000000000568656c6c6f"
PUB_K1 = "000000150100066576656e7473000000026b31000000027631"
PUB_EMPTY = "000000110100066576656e74730000000000000000"
SUB_OFFSET = "000000160200066576656e747301000000000000000000000000"
SUB_GROUP = "000000130200066576656e7473020007776f726b657273"
UNSUB = "000000090300066576656e7473"
HEARTBEAT = "000000120600066576656e74730007776f726b657273"
OK = "0000000110"
MSG_HELLO = "000000222000066576656e7473000000000000000000000000000000000000000568656c6c6f"
MSG_K1 = "000000212000066576656e7473000000010000000000000000000000026b31000000027631"

PUBLISHED = [
    (PUB_HELLO, "0000000d10000000000000000000000000"),
    (PUB_K1, "0000000d10000000010000000000000000"),
    (
        "0000001501000962616420746f706963000000000000000178",
        "0000001d11001a696e76616c696420746f7069633a202262616420746f70696322",
    ),
    ("0000000c010000000000000000000178", "00000014110011696e76616c696420746f7069633a202222"),
    ("0000000f0100066576656e7473000000056162", "0000000f11000c7075623a20626164206b6579"),
    (PUB_EMPTY, "0000000d10000000010000000000000001"),
    ("000000017f", "0000001211000f756e6b6e6f776e206f702030783766"),
    (
        "0000000e0200066576656e74730000000009",
        "0000002211001f706172746974696f6e2039206f7574206f662072616e67652028302e2e3329",
    ),
    ("0000000a0200066576656e747305", "000000161100137375623a20756e6b6e6f776e206d6f64652035"),
    (
        "0000001e0400066576656e74730007776f726b657273000000000000000000000001",
        "00000009100000000000000001",
    ),
    (
        HEARTBEAT,
        "000000241100216865617274626561743a206e6f742d737562736372696265643a206576656e7473",
    ),
    (UNSUB, "000000191100166e6f742d737562736372696265643a206576656e7473"),
]


def hexed(peer: Peer, request: str) -> str:
    return peer.exchange(bytes.fromhex(request)).hex()


def test_requests_without_subscriptions(peer: Peer) -> None:
    for request, reply in PUBLISHED:
        assert hexed(peer, request) == reply
    assert not peer.is_closed


def test_requests_that_arrive_byte_by_byte(peer: Peer) -> None:
    for request, reply in PUBLISHED:
        *first, last = bytes.fromhex(request)
        for byte in first:
            assert peer.exchange(bytes([byte])) == b""
        assert peer.exchange(bytes([last])).hex() == reply


def test_requests_that_arrive_all_at_once(peer: Peer) -> None:
    everything = "".join(request for request, _ in PUBLISHED)
    assert hexed(peer, everything) == "".join(reply for _, reply in PUBLISHED)


def test_subscription_from_an_offset_once_per_topic(peer: Peer) -> None:
    hexed(peer, PUB_HELLO)
    assert hexed(peer, SUB_OFFSET) == "00000009100000000100000000" + MSG_HELLO
    assert hexed(peer, "0000000e0200066576656e74730000000001") == (
        "0000001f11001c616c7265616479207375627363726962656420746f206576656e7473"
    )
    assert hexed(peer, UNSUB) == OK


def test_group_of_two(connect: Callable[[], Peer]) -> None:
    first, second = connect(), connect()
    hexed(first, PUB_HELLO)
    hexed(first, PUB_K1)
    joined = "0000001e100007776f726b6572730000000400000000000000010000000200000003"
    assert hexed(first, SUB_GROUP) == joined + MSG_HELLO + MSG_K1
    assert hexed(first, HEARTBEAT) == OK
    joined = "00000016100007776f726b657273000000020000000100000003"
    assert hexed(second, SUB_GROUP) == joined + MSG_K1
    assert first.received().hex() == (
        "0000001e2100066576656e74730007776f726b657273000000020000000000000002"
    )
    assert hexed(second, UNSUB) == OK
    # Nothing was committed: the partitions that come back are read from the start.
    assert first.received().hex() == (
        "000000262100066576656e74730007776f726b6572730000000400000000000000010000000200000003"
        + MSG_K1
    )


def test_silent_member_is_evicted(peer: Peer, world: World) -> None:
    hexed(peer, SUB_GROUP)
    world.advance(21)
    assert peer.received().hex() == (
        "0000001d11001a657669637465643a206865617274626561742074696d656f7574"
    )
    assert peer.is_closed


def test_quit(peer: Peer) -> None:
    assert hexed(peer, "0000000105") == OK
    assert peer.is_closed


@pytest.mark.parametrize("request_hex", ["00000000", "0640000101", "ffffffff01"])
def test_impossible_length_closes_without_a_word(peer: Peer, request_hex: str) -> None:
    assert hexed(peer, request_hex) == ""
    assert peer.is_closed


def test_payload_that_is_not_text(peer: Peer) -> None:
    assert hexed(peer, "00000010010003657632000000000000000200ff") == (
        "0000000d10000000000000000000000000"
    )
    assert hexed(peer, "0000001302000365763201000000000000000000000000") == (
        "000000091000000001000000000000001c200003657632000000000000000000000000000000000000000200ff"
    )


def test_partition_count_is_configurable() -> None:
    world = World(Settings(minibroker_partitions=2))
    peer = Peer(world, service_of(world))
    assert hexed(peer, SUB_GROUP) == "00000016100007776f726b657273000000020000000000000001"
