"""Blocking faces of clients: for code without an event loop, every call waits for its result.

The real client lives on a loop in a thread of its own; calls are handed over to it and may be made
from any thread. An interrupt (Ctrl-C) while a call waits cancels that call. A face lists the
client's methods wrapped in `waiting` and its like, through which a type checker sees their
parameters and results.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from dragoman.dialing.errors import ClientClosedError
from dragoman.dialing.loop_thread import LoopThread


class Closing(Protocol):
    async def close(self) -> None: ...


#: A client, or the class of its that has a method.
Owner = TypeVar("Owner")
Owner_co = TypeVar("Owner_co", covariant=True)
Client = TypeVar("Client", bound=Closing)
Part = TypeVar("Part", bound=Closing)
Result = TypeVar("Result")
Face = TypeVar("Face")
Parameters = ParamSpec("Parameters")


class _Handing(Generic[Owner_co]):
    """Who hands calls over to the client in the thread."""

    def __init__(self, name: str, make: Callable[[], Owner_co]) -> None:
        """`name` is the thread's."""
        self._thread = LoopThread(name)
        try:
            self._client = self._thread.make(make)
        except BaseException:
            self._thread.close()
            raise


class BlockingClient(_Handing[Client]):
    def open(self) -> Self:
        """Overridden where a client connects before its first call."""
        return self

    def close(self) -> None:
        try:
            self._thread.run(lambda: self._client.close())
        except ClientClosedError:
            return
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        try:
            return self.open()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockingPart(Generic[Part]):
    """The face of something that a client has made and that is closed by itself."""

    def __init__(self, thread: LoopThread, part: Part) -> None:
        self._thread = thread
        self._part = part

    def close(self) -> None:
        self._thread.run(lambda: self._part.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def waiting(
    method: Callable[Concatenate[Owner, Parameters], Coroutine[None, None, Result]],
) -> Callable[Concatenate[_Handing[Owner], Parameters], Result]:
    """The method that hands over to this one and waits."""

    @wraps(method)
    def wait(
        self: _Handing[Owner], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        return self._thread.run(lambda: method(self._client, *args, **kwargs))

    return wait


def beginning(
    method: Callable[Concatenate[Owner, Parameters], Coroutine[None, None, Result]],
) -> Callable[Concatenate[_Handing[Owner], Parameters], Future[Result]]:
    """The method that hands over to this one and returns what can be waited for."""

    @wraps(method)
    def begin(
        self: _Handing[Owner], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        return self._thread.begin(lambda: method(self._client, *args, **kwargs))

    return begin


def making(
    method: Callable[Concatenate[Owner, Parameters], Result],
    face: Callable[[LoopThread, Result], Face],
) -> Callable[Concatenate[_Handing[Owner], Parameters], Face]:
    """The method that has this one make something, and returns its blocking face."""

    @wraps(method)
    def make(self: _Handing[Owner], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Face:
        made = self._thread.make(lambda: method(self._client, *args, **kwargs))
        return face(self._thread, made)

    return make
