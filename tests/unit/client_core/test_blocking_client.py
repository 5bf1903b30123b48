"""Goal: a call that is handed over always ends, with its result or with why there is none; a face
has the methods of what it stands for, as users see them in `help`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from dragoman.client_core.blocking_client import (
    BlockingClient,
    BlockingPart,
    LoopThread,
    beginning,
    making,
    opening,
    waiting,
)
from dragoman.client_core.errors import ClientClosedError


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    started = LoopThread("test")
    yield started
    started.close()


async def _seven() -> int:
    return 7


def test_result_comes_back(thread: LoopThread) -> None:
    assert thread.run(_seven) == 7


def test_failure_comes_back(thread: LoopThread) -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        thread.run(fail)


@pytest.mark.parametrize("wrong", [None, 7, lambda: 7])
def test_call_that_cannot_start_fails_at_once(thread: LoopThread, wrong: Any) -> None:
    with pytest.raises(TypeError):
        thread.run(wrong)
    assert thread.run(_seven) == 7


def test_closed_one_refuses_and_may_be_closed_again(thread: LoopThread) -> None:
    thread.close()
    with pytest.raises(ClientClosedError):
        thread.run(_seven)
    thread.close()


# ---- faces


class Part:
    def __init__(self, name: str) -> None:
        self.name = name
        self.made_in = threading.current_thread().name
        self.is_closed = False

    async def shout(self, word: str = "hey", *, times: int = 1) -> str:
        """Says it loudly."""
        return f"{self.name}: {word.upper() * times}"

    async def close(self) -> None:
        self.is_closed = True


class Client(Part):
    def part(self, name: str) -> Part:
        """Makes one."""
        return Part(name)

    async def find(self, name: str) -> Part:
        """Finds one."""
        return Part(name)


class FacePart(BlockingPart[Part]):
    shout = waiting(Part.shout)


class FaceClient(BlockingClient[Client]):
    def __init__(self) -> None:
        super().__init__("the-loop", lambda: Client("client"))

    shout = waiting(Client.shout)
    begin_shout = beginning(Client.shout)
    part = making(Client.part, FacePart)
    find = opening(Client.find, FacePart)


def test_faces_of_clients_and_of_their_parts_wait_for_results() -> None:
    with FaceClient() as client:
        assert client.shout("oh", times=2) == "client: OHOH"
        begun = client.begin_shout()
        assert isinstance(begun, Future)
        assert begun.result() == "client: HEY"
        for part in (client.part("made"), client.find(name="found")):
            with part:
                assert part.shout() == f"{part._part.name}: HEY"
                assert part._part.made_in == client._client.made_in == "the-loop"
            assert part._part.is_closed
    assert client._client.is_closed
    with pytest.raises(ClientClosedError):
        client.shout()


def test_face_is_shown_with_the_signature_and_words_of_the_original() -> None:
    for face in (FaceClient.shout, FacePart.shout, FaceClient.begin_shout):
        assert inspect.signature(face) == inspect.signature(Part.shout)
        assert face.__doc__ == "Says it loudly."
    assert str(inspect.signature(FaceClient.part)) == "(self, name: 'str') -> 'FacePart'"
    assert str(inspect.signature(FaceClient.find)) == "(self, name: 'str') -> 'FacePart'"
    assert (FaceClient.part.__doc__, FaceClient.find.__doc__) == ("Makes one.", "Finds one.")
