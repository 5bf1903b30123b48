"""Blocking faces of clients, for code without an event loop: every call waits for its result.

The asyncio client runs on an event loop in a thread of its own. Calls are passed to it and may come
from any thread; an interrupt (Ctrl-C) while a call waits cancels that call. A face lists the
client's methods wrapped in `waiting`, `beginning`, `making` or `opening`, so that type checkers and
`help` show their parameters, results and docstrings.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial, wraps
from typing import Concatenate, Generic, ParamSpec, Protocol, Self, TypeAlias, TypeVar

from dragoman.client_core.errors import ClientClosedError


class Closing(Protocol):
    async def close(self) -> None: ...


#: The object behind a face: a client, or an object made by a client.
Owner = TypeVar("Owner")
Owner_co = TypeVar("Owner_co", covariant=True)
Client = TypeVar("Client", bound=Closing)
Part = TypeVar("Part", bound=Closing)
Result = TypeVar("Result")
AnyFace = TypeVar("AnyFace")
Parameters = ParamSpec("Parameters")
#: Makes the coroutine that the loop runs.
Work: TypeAlias = Callable[[], Coroutine[None, None, Result]]


# ---- the event loop in its thread


class LoopThread:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Work[Result]) -> Result:
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            # An interrupt ends the wait, and must cancel the work as well.
            future.cancel()
            raise

    def begin(self, work: Work[Result]) -> Future[Result]:
        """Run work on the loop without waiting for it.

        Its coroutine is made on the loop, so that an interrupt before that leaves no coroutine that
        is never awaited.
        """
        future: Future[Result] = Future()
        try:
            self._loop.call_soon_threadsafe(self._start, work, future)
        except RuntimeError:
            raise ClientClosedError("the client is closed") from None
        return future

    def _start(self, work: Work[Result], future: Future[Result]) -> None:
        try:
            task = self._loop.create_task(work())
        except Exception as error:  # noqa: BLE001
            # Without it, the caller would wait for ever.
            future.set_exception(error)
            return
        task.add_done_callback(partial(_settle, future))

        def give_up(_: Future[Result]) -> None:
            if future.cancelled() and not task.done():
                self._loop.call_soon_threadsafe(task.cancel)

        future.add_done_callback(give_up)

    def make(self, build: Callable[[], Result]) -> Result:
        """Build an object on the loop that it will belong to."""

        async def built() -> Result:
            return build()

        return self.run(built)

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run_loop(self) -> None:
        # The loop is only used in this thread: the caller's may already have a running loop.
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


def _settle(future: Future[Result], task: asyncio.Task[Result]) -> None:
    """Pass the result to the caller, unless the caller has cancelled the call."""
    if task.cancelled():
        future.cancel()
    error = None if task.cancelled() else task.exception()
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


# ---- faces


class Face(Generic[Owner_co]):
    """The blocking face of an object that lives on the loop of a thread."""

    def __init__(self, thread: LoopThread, owner: Owner_co) -> None:
        self._thread = thread
        self._owner = owner


class BlockingClient(Face[Client]):
    def __init__(self, name: str, make: Callable[[], Client]) -> None:
        """Starts a thread called `name` and makes the client on its loop."""
        thread = LoopThread(name)
        try:
            super().__init__(thread, thread.make(make))
        except BaseException:
            thread.close()
            raise

    @property
    def _client(self) -> Client:
        return self._owner

    def open(self) -> Self:
        """Override it for a client that connects before its first call."""
        return self

    def close(self) -> None:
        try:
            self._thread.run(lambda: self._owner.close())
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


class BlockingPart(Face[Part]):
    """The face of an object made by a client, with a `close` of its own."""

    @property
    def _part(self) -> Part:
        return self._owner

    def close(self) -> None:
        self._thread.run(lambda: self._owner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def waiting(
    method: Callable[Concatenate[Owner, Parameters], Coroutine[None, None, Result]],
) -> Callable[Concatenate[Face[Owner], Parameters], Result]:
    """The face's method that calls `method` and waits for its result."""

    @wraps(method)
    def wait(self: Face[Owner], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return self._thread.run(lambda: method(self._owner, *args, **kwargs))

    return wait


def beginning(
    method: Callable[Concatenate[Owner, Parameters], Coroutine[None, None, Result]],
) -> Callable[Concatenate[Face[Owner], Parameters], Future[Result]]:
    """The face's method that calls `method` and returns a future of its result."""

    @wraps(method)
    def begin(
        self: Face[Owner], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        return self._thread.begin(lambda: method(self._owner, *args, **kwargs))

    return begin


def making(
    method: Callable[Concatenate[Owner, Parameters], Result],
    face: Callable[[LoopThread, Result], AnyFace],
) -> Callable[Concatenate[Face[Owner], Parameters], AnyFace]:
    """The face's method that calls `method` and wraps the result in a blocking face."""

    @wraps(method)
    def make(self: Face[Owner], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> AnyFace:
        made = self._thread.make(lambda: method(self._owner, *args, **kwargs))
        return face(self._thread, made)

    _show_result(make, face)
    return make


def opening(
    method: Callable[Concatenate[Owner, Parameters], Coroutine[None, None, Result]],
    face: Callable[[LoopThread, Result], AnyFace],
) -> Callable[Concatenate[Face[Owner], Parameters], AnyFace]:
    """`making` for a method that has to be awaited."""

    @wraps(method)
    def open_(self: Face[Owner], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> AnyFace:
        made = self._thread.run(lambda: method(self._owner, *args, **kwargs))
        return face(self._thread, made)

    _show_result(open_, face)
    return open_


def _show_result(function: Callable[..., object], face: Callable[..., object]) -> None:
    """`help` shows the signature of the wrapped method, with the face as its result."""
    shown = inspect.signature(function).replace(return_annotation=getattr(face, "__name__", face))
    vars(function)["__signature__"] = shown
