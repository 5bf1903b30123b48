"""Goal: what people see of captures while tables are read, and while they watch."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import msgspec
import pytest

from dragoman.api.values import CaptureDescription
from dragoman.captures.control import Status, TableProgress
from dragoman.cli import cdc_display as display
from dragoman.cli.cdc_display import size_text, time_text, wait_until_it_runs, watch
from dragoman.cli.status import CommandError

CAPTURE = CaptureDescription(
    name="shop",
    definition=None,
    paused=False,
    node=1,
    status=Status(state="starting"),
    restarts=0,
    rows=0,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def looks(*states: Status) -> Callable[[], CaptureDescription]:
    left: Iterator[Status] = iter(states)
    return lambda: msgspec.structs.replace(CAPTURE, status=next(left))


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "_POLL_S", 0)


def read(rows: int, *, is_done: bool = False) -> Status:
    progress = TableProgress(
        table="public.orders",
        rows=rows,
        rows_expected=1000,
        bytes=rows * 1024,
        is_done=is_done,
        seconds_left=75.0,
    )
    return Status(state="snapshotting", tables=(progress,))


def test_tables_that_are_read_have_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    done = msgspec.structs.replace(read(1000, is_done=True), state="streaming")
    capture = wait_until_it_runs(looks(Status(state="starting"), read(500), done))
    assert capture.status.state == "streaming"
    shown = terminal.getvalue()
    assert "public.orders" in shown
    assert "1000/1000" in shown
    assert "1000.0 KiB, nothing left" in shown


def test_elsewhere_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    wait_until_it_runs(looks(read(1), Status(state="paused")))
    assert capsys.readouterr() == ("", "")


def test_reading_may_take_long_and_waiting_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 100_000, 20))
    monkeypatch.setattr(display.time, "monotonic", lambda: next(now))
    many = [read(rows) for rows in range(50)]
    assert wait_until_it_runs(looks(*many, Status(state="streaming"))) is not None
    waiting = Status(state="waiting", problem="no route")
    with pytest.raises(CommandError, match="is waiting: no route; it is retried"):
        wait_until_it_runs(looks(*many, *[waiting] * 10))


def test_watch_shows_the_view_repeatedly() -> None:
    seen: list[int] = []

    def show() -> None:
        seen.append(len(seen))
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(show)
    assert seen == [0, 1, 2]


def test_sizes_and_times_are_for_people() -> None:
    assert [size_text(size) for size in (-1, 0, 1023, 1024, 5 << 20, 1 << 62)] == [
        None,
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "4096.0 PiB",
    ]
    assert [time_text(each) for each in (-1, 0, 59.94, 60, 3725)] == [
        None,
        "0.0 s",
        "59.9 s",
        "0:01:00",
        "1:02:05",
    ]
