"""Results that are settled later, and coroutines that wait for them without an event loop.

An `Outcome` is settled exactly once, with a value or with an error, and has at most one waiter: a
coroutine or a callback. The waiter resumes inside the call that settles the outcome, in the same
loop turn, as a callback would. An `asyncio.Future` resumes its waiters a turn later; the core
relies on "at once", and in the simulator it has no asyncio.

    async def create(self, new: NewTopic) -> TopicMetadata:
        await self._changes.make(decide)
        return self._image.topics[new.name]

    start(topics.create(new)).then(reply)

The rules, each of which is a test:

* Awaiting a settled outcome does not suspend.
* A coroutine that ends resumes the one that awaits it in a loop, not in a recursion: a chain of
  any length needs no stack.
* A `DragomanError` belongs to the outcome. Any other exception travels up the coroutines that wait,
  and surfaces in whatever started or resumed the outermost one.
* Nothing is cancelled. Work for a client that has gone runs to its end, and its reply is dropped.
* The garbage collector never closes a suspended coroutine, so a simulated node that was killed runs
  no `finally`. A service that stops settles its outcomes.

A coroutine costs two to three microseconds, a callback a tenth of that: produce, fetch, heartbeats,
join and sync, offset commits and replication use callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar, final

from dragoman.errors import DragomanError
from dragoman.world import Scheduler

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
#: Receives a result or the reason why there is none.
Callback: TypeAlias = Callable[[T | DragomanError], None]
#: Receives None on completion, or the error.
Acknowledge: TypeAlias = Callable[[DragomanError | None], None]

_UNSETTLED: Final = object()
#: Suspended coroutines, referenced so that they are not collected.
_suspended: set[_Running[object]] = set()


class Outcome(Generic[T]):
    """A result that may not be known yet."""

    __slots__ = ("_error", "_value", "_waiter")

    def __init__(self) -> None:
        self._value: object = _UNSETTLED
        self._error: BaseException | None = None
        self._waiter: _Running[object] | Callback[T] | None = None

    @property
    def is_settled(self) -> bool:
        return self._value is not _UNSETTLED

    def succeed(self, value: T) -> None:
        """Settle with a value, and resume the waiter."""
        self._keep(value, None)
        self._resume_waiter()

    def fail(self, error: DragomanError) -> None:
        """Settle with an error, and resume the waiter."""
        self._keep(None, error)
        self._resume_waiter()

    def settle(self, result: T | DragomanError) -> None:
        """Settle with what a `Callback` receives."""
        if isinstance(result, DragomanError):
            self.fail(result)
        else:
            self.succeed(result)

    def acknowledge(self: Outcome[None], error: DragomanError | None) -> None:
        """Settle with what an `Acknowledge` receives."""
        if error is None:
            self.succeed(None)
        else:
            self.fail(error)

    def result(self) -> T:
        """The value of a settled outcome. Raises its error."""
        assert self._value is not _UNSETTLED, "the outcome is not settled yet"
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value] # `_keep` has put a T there

    def then(self, callback: Callback[T]) -> None:
        """Call back with the result: now if it is settled, else inside the call that settles it."""
        assert self._waiter is None, "an outcome has one waiter"
        self._waiter = callback
        if self.is_settled:
            self._resume_waiter()

    def __await__(self) -> Generator[Outcome[T], None, T]:
        if self._value is _UNSETTLED:
            assert self._waiter is None, "an outcome has one waiter"
            yield self
        return self.result()

    def _keep(self, value: object, error: BaseException | None) -> None:
        assert self._value is _UNSETTLED, "an outcome is settled once"
        self._value = value
        self._error = _without_frames(error) if isinstance(error, DragomanError) else error

    def _resume_waiter(self) -> None:
        waiter = self._waiter
        if type(waiter) is _Running:
            waiter.run()
        elif waiter is not None:
            self._call(waiter)

    def _call(self, callback: Callback[T]) -> None:
        error = self._error
        if error is None:
            callback(self._value)  # type: ignore[arg-type] # `_keep` has put a T there
        elif isinstance(error, DragomanError):
            callback(error)
        else:
            raise error


@final
class _Running(Outcome[T]):
    """A coroutine and its outcome."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[object, None, T]) -> None:
        super().__init__()
        self._coroutine = coroutine

    def run(self) -> None:
        """Run the coroutine until it suspends; when it ends, continue with the coroutine that
        awaits it.
        """
        running: _Running[object] = self  # type: ignore[assignment] # its results are kept, not used
        while True:
            _suspended.discard(running)
            error: BaseException | None = None
            value: object = None
            try:
                awaited = running._coroutine.send(None)
            except StopIteration as stop:
                value = stop.value
            except BaseException as raised:  # noqa: BLE001 # passed on, or raised below
                error = raised
            else:
                assert isinstance(awaited, Outcome), f"{awaited!r} is not an Outcome"
                assert awaited._waiter is None, "an outcome has one waiter"
                awaited._waiter = running
                _suspended.add(running)
                return
            running._keep(value, error)
            waiter = running._waiter
            if type(waiter) is not _Running:
                if waiter is not None:
                    running._call(waiter)
                elif error is not None and not isinstance(error, DragomanError):
                    raise error
                return
            running = waiter


def _without_frames(error: E) -> E:
    """An error that is kept as a value, without the stack that raised it.

    The frames of the stack refer to the request, with all its bytes, and to the outcome that keeps
    the error: a cycle that is not collected for thousands of requests.
    """
    error.__traceback__ = None
    part = error.__cause__ or error.__context__
    while part is not None and part.__traceback__ is not None:
        part.__traceback__ = None
        part = part.__cause__ or part.__context__
    return error


def release_suspended() -> None:
    """Let coroutines be collected that nothing can resume any more, with all that they refer to.

    For tests, whose nodes are dropped in the middle of their work. Coroutines that an outcome can
    still resume are kept by that outcome.
    """
    _suspended.clear()


def start(coroutine: Coroutine[object, None, T]) -> Outcome[T]:
    """Run a coroutine until it suspends, and return its outcome.

    Raises what the coroutine raises before it suspends, unless that is a `DragomanError`.
    """
    running = _Running(coroutine)
    running.run()
    return running


def succeeded(value: T) -> Outcome[T]:
    """A settled outcome with a value."""
    outcome: Outcome[T] = Outcome()
    outcome.succeed(value)
    return outcome


def failed(error: DragomanError) -> Outcome[T]:
    """A settled outcome with an error."""
    outcome: Outcome[T] = Outcome()
    outcome.fail(error)
    return outcome


# ---- callbacks


def called_back(begin: Callable[[Callback[T]], object]) -> Outcome[T]:
    """The outcome of a function that calls back with a result. Raises what the function raises."""
    outcome: Outcome[T] = Outcome()
    begin(outcome.settle)
    return outcome


def acknowledged(begin: Callable[[Acknowledge], object]) -> Outcome[None]:
    """The outcome of a function that calls back on completion. Raises what the function raises."""
    outcome: Outcome[None] = Outcome()
    begin(outcome.acknowledge)
    return outcome


def acknowledge_to(done: Acknowledge) -> Callback[object]:
    """A callback for `Outcome.then` that drops the value."""
    return lambda result: done(result if isinstance(result, DragomanError) else None)


def ignore(_result: object) -> None:
    """A callback for `Outcome.then` that ignores both value and error."""


# ---- several


def gather(outcomes: Iterable[Outcome[T]]) -> Outcome[list[T]]:
    """All values, in order, when every outcome is settled; or the first error."""
    waited = list(outcomes)
    gathered: Outcome[list[T]] = Outcome()
    left = len(waited)
    first: DragomanError | None = None

    def settled(outcome: Outcome[T], _result: object) -> None:
        nonlocal left, first
        left -= 1
        if first is None and isinstance(outcome._error, DragomanError):
            first = outcome._error
        if not left:
            gathered.settle([each.result() for each in waited] if first is None else first)

    if not waited:
        gathered.succeed([])
    for each in waited:
        each.then(partial(settled, each))
    return gathered


async def attempt(outcome: Outcome[T] | Coroutine[object, None, T]) -> T | DragomanError:
    """The value, or the error as a value, for results that are examined one by one."""
    try:
        return await outcome
    except DragomanError as error:
        return _without_frames(error)


# ---- time


def pause(scheduler: Scheduler, seconds: float) -> Outcome[None]:
    """Settled after this many seconds; with 0, in the next loop turn."""
    outcome: Outcome[None] = Outcome()
    if seconds > 0:
        scheduler.call_later(seconds, outcome.succeed, None)
    else:
        scheduler.call_soon(outcome.succeed, None)
    return outcome


def deadline(
    outcome: Outcome[T], scheduler: Scheduler, seconds: float, error: Callable[[], DragomanError]
) -> Outcome[T]:
    """The outcome, or `error()` after a time-out; a late result is dropped."""
    bounded: Outcome[T] = Outcome()

    def late() -> None:
        bounded.fail(error())

    timer = scheduler.call_later(seconds, late)

    def settled(result: T | DragomanError) -> None:
        if not bounded.is_settled:
            timer.cancel()
            bounded.settle(result)

    outcome.then(settled)
    return bounded


class Retry(NamedTuple):
    """Which errors are retried, and for how long.

    These errors guarantee that nothing was done and that a retry may succeed.
    """

    transient: tuple[type[DragomanError], ...]
    #: Seconds between two attempts.
    interval_s: float
    #: Seconds after the first attempt during which retries may begin.
    patience_s: float


async def retried(
    retry: Retry,
    scheduler: Scheduler,
    attempts: Callable[[], Coroutine[object, None, T]],
    is_over: Callable[[], bool] = lambda: False,
) -> T:
    """The first result that is not a transient error. When patience or `is_over` ends the retries,
    the last transient error.
    """
    until = scheduler.time() + retry.patience_s
    while True:
        try:
            return await attempts()
        except retry.transient:
            if scheduler.time() >= until or is_over():
                raise
        await pause(scheduler, retry.interval_s)
