"""Goal: frames whose signature is not verified hold bounded memory, and a client that sends its own
in one go gets through whatever others hold.
"""

from __future__ import annotations

import pytest

from dragoman.limits import LOGIN_FRAME_BYTES_MAX, UNVERIFIED_BUDGET_SHARE
from dragoman.security.login_origins import KnownOrigins
from dragoman.security.unverified_frames import UnverifiedFrames

MB = 1 << 20


class Client:
    def __init__(self, frames: UnverifiedFrames, host: str) -> None:
        self._frames = frames
        self._host = host
        self.reason = ""

    def cut(self, why: str) -> None:
        self.reason = why

    def holds(self, size: int) -> Client:
        self._frames.holds(self, self._host, size)
        return self


@pytest.fixture
def known() -> KnownOrigins:
    return KnownOrigins()


@pytest.fixture
def frames(known: KnownOrigins, monkeypatch: pytest.MonkeyPatch) -> UnverifiedFrames:
    """4 MB in all, 2 MB from one address."""
    monkeypatch.setattr(
        "dragoman.security.unverified_frames.UNVERIFIED_PER_ADDRESS_BYTES_MAX", 2 * MB
    )
    return UnverifiedFrames(lambda: 4 * MB * UNVERIFIED_BUDGET_SHARE, known)


def cut(clients: list[Client]) -> list[bool]:
    return [bool(each.reason) for each in clients]


def test_frames_of_one_address_displace_the_oldest_of_it(frames: UnverifiedFrames) -> None:
    other = Client(frames, "10.0.0.2").holds(MB)
    clients = [Client(frames, "10.0.0.1").holds(MB) for _ in range(3)]
    assert cut(clients) == [True, False, False]
    assert not other.reason
    assert frames.in_all == 3 * MB
    # The one that began first gives way, even to itself.
    clients[1].holds(2 * MB)
    assert cut(clients) == [True, True, False]
    assert frames.displaced == 2


def test_frames_in_all_displace_the_oldest(frames: UnverifiedFrames) -> None:
    clients = [Client(frames, f"10.0.0.{number}").holds(MB) for number in range(6)]
    assert cut(clients) == [True, True, False, False, False, False]
    assert frames.in_all == 4 * MB


def test_addresses_that_have_logged_in_give_way_last(
    frames: UnverifiedFrames, known: KnownOrigins
) -> None:
    known.add("10.0.0.1")
    user = Client(frames, "10.0.0.1").holds(2 * MB)
    strangers = [Client(frames, f"10.0.1.{number}").holds(MB) for number in range(20)]
    assert not user.reason
    assert cut(strangers) == [True] * 18 + [False] * 2


def test_a_frame_alone_may_be_of_any_size(frames: UnverifiedFrames) -> None:
    client = Client(frames, "10.0.0.1").holds(16 * MB)
    assert not client.reason
    assert frames.in_all == 16 * MB


def test_small_frames_do_not_count(frames: UnverifiedFrames) -> None:
    clients = [Client(frames, "10.0.0.1").holds(LOGIN_FRAME_BYTES_MAX) for _ in range(200)]
    assert not any(cut(clients))
    assert frames.in_all == 0


def test_what_is_released_leaves_room(frames: UnverifiedFrames) -> None:
    clients = []
    for _ in range(100):
        client = Client(frames, "2001:db8::1").holds(2 * MB).holds(0)
        frames.left(client)
        clients.append(client)
    assert not any(cut(clients))
    assert frames.in_all == 0
    assert frames._by_origin == {}
