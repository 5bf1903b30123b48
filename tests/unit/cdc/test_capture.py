"""The life of a capture with sessions that a test plays: what is said, tried again, given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import pytest

from captures.no_snapshots import NoSnapshots
from dragoman.captures.control import (
    Done,
    Pause,
    Report,
    Resume,
    Rewind,
    Snapshot,
    Start,
    Status,
    Stop,
)
from dragoman.captures.definition import Definition
from dragoman.cdc import capture as module
from dragoman.cdc.capture import Capture
from dragoman.cdc.position import Position
from dragoman.cdc.session import TakenOverError
from dragoman.cdc.source.connection import SourceError
from dragoman.cdc.spool import SpoolFullError
from dragoman.client_core.errors import UnreachableError
from dragoman.errors import CdcError, DragomanError
from dragoman.protocols.kafka.client.errors import BatchTooLargeError

START = Start(
    definition=Definition(name="shop", dsn="postgresql://h/d", channels=("c",)),
    bootstrap="127.0.0.1:1",
    spool="",
)


class PlayedSession:
    """Fails as `failures` says, one after the other; then it works until it is ended."""

    failures: list[DragomanError | Exception] = []
    opened = 0
    rewound: list[int] = []

    def __init__(self, _told: object) -> None:
        self.position = Position(lsn=100)
        self.has_moved = False
        self.snapshots: NoSnapshots | None = None
        self.lag_bytes, self.lag_s = 0, 0.0
        self.warnings: tuple[str, ...] = ()
        self._ended = asyncio.Event()

    async def open(self) -> None:
        type(self).opened += 1
        if self.failures:
            raise self.failures.pop(0)

    async def rewind(self, lsn: int) -> None:
        if lsn > 100:
            raise CdcError("out of reach")
        self.rewound.append(lsn)

    async def run(self, begun: Callable[[], None]) -> None:
        begun()
        await self._ended.wait()

    def end(self) -> None:
        self._ended.set()

    async def close(self) -> None: ...


class Played:
    def __init__(self, start: Start = START) -> None:
        self.reports: list[Report] = []
        self.capture = Capture(start, self.reports.append, lambda *_: NoSnapshots())
        self.running = asyncio.create_task(self.capture.run())

    @property
    def states(self) -> list[str]:
        """Without repetitions."""
        found = [each.state for each in self.reports if isinstance(each, Status)]
        return [each for index, each in enumerate(found) if not index or found[index - 1] != each]

    @property
    def problems(self) -> list[str]:
        return [each.problem for each in self.reports if isinstance(each, Status) and each.problem]

    async def until(self, state: str) -> None:
        async with asyncio.timeout(60):
            while self.states[-1:] != [state]:
                await asyncio.sleep(0)

    async def done(self, command_id: str) -> Done:
        async with asyncio.timeout(60):
            while True:
                for each in self.reports:
                    if isinstance(each, Done) and each.id == command_id:
                        return each
                await asyncio.sleep(0)


@pytest.fixture
async def play(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Played]]:
    made: list[Played] = []
    monkeypatch.setattr(module, "Session", PlayedSession)
    monkeypatch.setattr(module, "CAPTURE_RETRY_MIN_S", 0.001)
    monkeypatch.setattr(PlayedSession, "opened", 0)
    monkeypatch.setattr(PlayedSession, "rewound", [])

    def begin(*failures: Exception, start: Start = START) -> Played:
        monkeypatch.setattr(PlayedSession, "failures", list(failures))
        made.append(Played(start))
        return made[-1]

    yield begin
    for each in made:
        each.running.cancel()
        await asyncio.gather(each.running, return_exceptions=True)


async def test_capture_starts_streams_and_stops(play: Callable[..., Played]) -> None:
    played = play()
    await played.until("streaming")
    played.capture.take(Stop())
    await played.running
    assert played.states == ["starting", "streaming", "stopped"]
    status = played.reports[-2]
    assert isinstance(status, Status)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SourceError("away", "wait", is_transient=True), "away: wait"),
        (UnreachableError("cannot reach it"), "the broker: cannot reach it"),
        (SpoolFullError("no space"), "no space"),
        (BatchTooLargeError(10), "raise max.message.bytes"),
    ],
)
async def test_trouble_that_may_go_away_is_waited_for(
    play: Callable[..., Played], error: Exception, said: str
) -> None:
    played = play(error, error)
    await played.until("streaming")
    assert played.states[:3] == ["starting", "waiting", "streaming"]
    assert said in played.problems[0]
    assert PlayedSession.opened == 3


@pytest.mark.parametrize("error", [SourceError("no slot", "do this"), CdcError("broken")])
async def test_failed_capture_waits_for_resume(
    play: Callable[..., Played], error: Exception
) -> None:
    played = play(error)
    await played.until("failed")
    for _ in range(100):
        await asyncio.sleep(0)
    assert PlayedSession.opened == 1
    played.capture.take(Resume())
    await played.until("streaming")
    assert PlayedSession.opened == 2


async def test_pauses_grow_with_failures_in_a_row(
    play: Callable[..., Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    timeout = asyncio.timeout

    def noted(pause_s: float) -> asyncio.Timeout:
        if pause_s < 60:
            pauses.append(pause_s)
        return timeout(pause_s)

    monkeypatch.setattr(module.asyncio, "timeout", noted)
    played = play(*[UnreachableError("away")] * 5)
    while not played.states or played.states[-1] != "streaming":
        await asyncio.sleep(0)
    assert len(pauses) == 5
    assert all(later > 1.5 * earlier for earlier, later in pairwise(pauses))


async def test_taken_over_process_ends_and_says_so(play: Callable[..., Played]) -> None:
    played = play(TakenOverError("another process has taken the capture over"))
    await played.running
    last = played.reports[-1]
    assert isinstance(last, Status)
    assert (last.state, last.problem) == (
        "stopped",
        "another process has taken the capture over",
    )


async def test_full_disk_and_the_like_are_said_and_end_nothing(play: Callable[..., Played]) -> None:
    played = play(PermissionError(13, "denied"))
    await played.until("failed")
    assert "denied" in played.problems[0]


async def test_pause_and_resume(play: Callable[..., Played]) -> None:
    played = play()
    await played.until("streaming")
    played.capture.take(Pause())
    await played.until("paused")
    played.capture.take(Resume())
    await played.until("streaming")
    assert PlayedSession.opened == 2


async def test_capture_that_begins_paused_opens_nothing_but_to_rewind(
    play: Callable[..., Played],
) -> None:
    played = play(
        start=Start(
            **{name: getattr(START, name) for name in ("definition", "bootstrap", "spool")},
            is_paused=True,
        )
    )
    await played.until("paused")
    assert PlayedSession.opened == 0
    played.capture.take(Rewind(id="1", lsn="0/40"))
    assert (await played.done("1")).problem == ""
    assert PlayedSession.rewound == [0x40]
    await played.until("paused")
    played.capture.take(Rewind(id="2", lsn="0/4000"))
    assert (await played.done("2")).problem == "out of reach"
    played.capture.take(Rewind(id="3", lsn="none"))
    assert "not a position" in (await played.done("3")).problem
    await played.until("paused")


async def test_snapshot_of_nothing_is_refused(play: Callable[..., Played]) -> None:
    played = play()
    await played.until("streaming")
    played.capture.take(Snapshot(id="1"))
    assert "cannot take a snapshot" in (await played.done("1")).problem


async def test_a_snapshot_that_was_promised_is_asked_for_again(
    play: Callable[..., Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ended before the request was in the log."""
    asked: list[tuple[str, ...]] = []

    class Promising(NoSnapshots):
        pending = ("public.orders",)

        def request(self, tables: tuple[str, ...]) -> None:
            asked.append(tables)

    made = PlayedSession.__init__

    def with_snapshots(self: PlayedSession, told: object) -> None:
        made(self, told)
        self.snapshots = Promising()

    monkeypatch.setattr(PlayedSession, "__init__", with_snapshots)
    played = play()
    await played.until("streaming")
    assert asked == []
    played.capture.take(Pause())
    await played.until("paused")
    played.capture.take(Resume())
    await played.until("streaming")
    assert asked == [("public.orders",)]
