"""An event loop that runs beside the caller: for clients whose calls wait for their results.

Calls may be made from any thread. An interrupt (Ctrl-C) while a call waits cancels that call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import TypeAlias, TypeVar

from dragoman.dialing.errors import ClientClosedError

Result = TypeVar("Result")
#: Begins what the loop shall do.
Work: TypeAlias = Callable[[], Coroutine[None, None, Result]]


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
            # An interrupt ends the waiting, and must end the work as well.
            future.cancel()
            raise

    def begin(self, work: Work[Result]) -> Future[Result]:
        """Hand work over without waiting for it.

        Its coroutine is made on the loop: an interrupt on the way there leaves none behind that
        nobody awaits.
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
            # Whoever waits must hear of it: nothing else would end the waiting.
            future.set_exception(error)
            return
        task.add_done_callback(partial(_settle, future))

        def give_up(_: Future[Result]) -> None:
            if future.cancelled() and not task.done():
                self._loop.call_soon_threadsafe(task.cancel)

        future.add_done_callback(give_up)

    def make(self, build: Callable[[], Result]) -> Result:
        """Build something on the loop that it will belong to."""

        async def built() -> Result:
            return build()

        return self.run(built)

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run_loop(self) -> None:
        # All of the loop's life is in this thread: the caller's may have a running loop already.
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
    """Hand the outcome to whoever waits, unless that one has given up."""
    if task.cancelled():
        future.cancel()
    error = None if task.cancelled() else task.exception()
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())
