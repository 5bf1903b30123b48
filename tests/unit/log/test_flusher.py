"""The flusher process: the same work as `world.perform`, in order, without blocking the loop.

Runs the real process on temporary directories, watched by a small poller and, in one test, by the
event loops it is made for. Nothing depends on time: SIGSTOP stops the process while it must not
answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import marshal
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from dragoman.errors import DirectoryInUseError
from dragoman.limits import BACKGROUND_JOB_BYTES_MAX, BACKGROUND_JOBS_MAX, BULK_SYNC_FILES_MIN
from dragoman.log import flusher_process
from dragoman.log.flusher import Flusher
from dragoman.operating_system import RealDisk
from dragoman.world import BackgroundJob, Replacement, perform


class Poller:
    """The readiness port without an event loop."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> None:
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def add_writer(self, fd: int, callback: Callable[[], object], /) -> None:
        self._selector.register(fd, selectors.EVENT_WRITE, callback)

    def remove_reader(self, fd: int, /) -> bool:
        return self._remove(fd)

    def remove_writer(self, fd: int, /) -> bool:
        return self._remove(fd)

    def _remove(self, fd: int) -> bool:
        try:
            self._selector.unregister(fd)
        except KeyError:
            return False
        return True

    def watched(self) -> int:
        return len(self._selector.get_map())

    def wait_for(self, answers: list[OSError | None], count: int = 1) -> None:
        while len(answers) < count:
            for key, _ in self._selector.select():
                key.data()

    def outcome(self, flusher: Flusher, job: BackgroundJob) -> OSError | None:
        answers: list[OSError | None] = []
        flusher.submit(job, answers.append)
        assert answers == [], "done was called from within submit"
        self.wait_for(answers)
        return answers[0]


@pytest.fixture
def poller() -> Iterator[Poller]:
    made = Poller()
    yield made
    assert made.watched() == 0, "a descriptor is still watched"
    made._selector.close()


@pytest.fixture
def flusher(tmp_path: Path, poller: Poller) -> Iterator[Flusher]:
    made = Flusher(str(tmp_path / "data"), poller)
    RealDisk(str(tmp_path / "data"))
    yield made
    made.close()


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def prepare(root: Path) -> None:
    (root / "d").mkdir(parents=True)
    (root / "a").write_bytes(b"aaa")
    (root / "d/b").write_bytes(b"bbb")
    (root / "left.new").write_bytes(b"a longer leftover")


def wait_until_stopped(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


JOBS = {
    "so many files that the whole file system is synced": BackgroundJob(
        sync=("plain",),
        sync_directories=("",),
        replace=tuple(Replacement(f"many-{n}", b"%d" % n) for n in range(BULK_SYNC_FILES_MIN)),
    ),
    "nothing": BackgroundJob(),
    "sync": BackgroundJob(sync=("a", "d/b"), sync_directories=("", "d")),
    "missing": BackgroundJob(sync=("none", "no/file"), sync_directories=("nowhere",)),
    "replace": BackgroundJob(replace=(Replacement("d/new", b"x" * 9), Replacement("a", b""))),
    "replace with a leftover": BackgroundJob(replace=(Replacement("left", b"over"),)),
    "large": BackgroundJob(replace=(Replacement("big", bytes(range(256)) * 20_000),)),
    "zero fill": BackgroundJob(zero_fill=(("z", 3 * (1 << 20) + 5), ("d/empty", 0))),
    "not a directory": BackgroundJob(sync_directories=("a",), zero_fill=(("z", 4),)),
    "exists": BackgroundJob(zero_fill=(("y", 4), ("a", 4), ("z", 4))),
    "no parent": BackgroundJob(replace=(Replacement("nowhere/x", b"x"), Replacement("y", b"y"))),
    "is a directory": BackgroundJob(sync=("a", "d")),
    "write out": BackgroundJob(write_out=(("a", 0, 3), ("none", 0, 9), ("a", 99, 1), ("d", 0, 1))),
    "non-ascii": BackgroundJob(replace=(Replacement("d/ü%2F\udcff", b"x"),)),
}


@pytest.mark.parametrize("name", JOBS)
def test_does_exactly_what_perform_does(
    tmp_path: Path, flusher: Flusher, poller: Poller, name: str
) -> None:
    roots = tmp_path / "data", tmp_path / "reference"
    for root in roots:
        prepare(root)
    error = poller.outcome(flusher, JOBS[name])
    expected: OSError | None = None
    try:
        perform(RealDisk(str(roots[1])), JOBS[name])
    except OSError as raised:
        expected = raised
    assert type(error) is type(expected)
    assert tree(roots[0]) == tree(roots[1])
    if error is not None and expected is not None:
        assert error.errno == expected.errno
        assert error.filename == str(expected.filename).replace("/reference", "/data")


def test_no_process_before_the_first_job(flusher: Flusher, poller: Poller) -> None:
    assert flusher.pid is None
    poller.outcome(flusher, BackgroundJob())
    assert flusher.pid is not None


def test_process_is_small(flusher: Flusher, poller: Poller) -> None:
    poller.outcome(flusher, BackgroundJob())
    status = Path(f"/proc/{flusher.pid}/status").read_text()
    resident_kb = int(status.partition("VmRSS:")[2].split()[0])
    assert resident_kb < 12_000


def test_jobs_are_done_in_order_and_an_error_does_not_stop_the_next(
    tmp_path: Path, flusher: Flusher, poller: Poller
) -> None:
    seen: list[tuple[int, int | None]] = []
    finished: list[OSError | None] = []

    def note(index: int) -> Callable[[OSError | None], None]:
        return lambda error: seen.append((index, error.errno if error else None))

    for index in range(20):
        data = str(index).encode()
        path = "a" if index != 7 else "nowhere/a"
        flusher.submit(BackgroundJob(replace=(Replacement(path, data),)), note(index))
    flusher.submit(BackgroundJob(), finished.append)
    assert seen == []
    poller.wait_for(finished)
    assert seen == [(i, errno.ENOENT if i == 7 else None) for i in range(20)]
    assert (tmp_path / "data/a").read_bytes() == b"19"


def test_submit_does_not_block_while_the_process_stands_still(
    tmp_path: Path, flusher: Flusher, poller: Poller
) -> None:
    poller.outcome(flusher, BackgroundJob())
    pid = flusher.pid
    assert pid is not None
    wait_until_stopped(pid)
    answers: list[OSError | None] = []
    finished: list[OSError | None] = []
    for index in range(10):
        job = BackgroundJob(replace=(Replacement(f"f{index}", bytes([index]) * 300_000),))
        flusher.submit(job, answers.append)
    flusher.submit(BackgroundJob(), finished.append)
    assert answers == []
    os.kill(pid, signal.SIGCONT)
    poller.wait_for(finished)
    assert finished == [None]
    assert answers == [None] * 10
    assert tree(tmp_path / "data") == {f"f{i}": bytes([i]) * 300_000 for i in range(10)}


def test_more_jobs_than_the_bound_are_refused_and_the_others_done(
    flusher: Flusher,
    poller: Poller,
) -> None:
    poller.outcome(flusher, BackgroundJob())
    assert flusher.pid is not None
    wait_until_stopped(flusher.pid)
    answers: list[OSError | None] = []
    for _ in range(BACKGROUND_JOBS_MAX - 1):
        flusher.submit(BackgroundJob(), answers.append)
    finished: list[OSError | None] = []
    flusher.submit(BackgroundJob(), finished.append)
    with pytest.raises(OSError, match="waiting already") as refused:
        flusher.submit(BackgroundJob(), answers.append)
    assert refused.value.errno == errno.ENOBUFS
    os.kill(flusher.pid, signal.SIGCONT)
    poller.wait_for(finished)
    assert finished == [None]
    assert answers == [None] * (BACKGROUND_JOBS_MAX - 1)


def test_a_job_too_large_is_refused_without_a_process(flusher: Flusher, poller: Poller) -> None:
    job = BackgroundJob(replace=(Replacement("a", bytes(BACKGROUND_JOB_BYTES_MAX + 1)),))
    with pytest.raises(OSError, match="too large") as refused:
        flusher.submit(job, lambda _: None)
    assert refused.value.errno == errno.EMSGSIZE
    assert flusher.pid is None


def test_every_waiting_job_fails_when_the_process_dies_and_the_next_gets_a_new_one(
    tmp_path: Path, flusher: Flusher, poller: Poller
) -> None:
    poller.outcome(flusher, BackgroundJob())
    first = flusher.pid
    assert first is not None
    wait_until_stopped(first)
    answers: list[OSError | None] = []
    finished: list[OSError | None] = []
    # More than a pipe holds: the queue of unsent bytes must be given up too.
    flusher.submit(BackgroundJob(replace=(Replacement("a", bytes(1 << 20)),)), answers.append)
    flusher.submit(BackgroundJob(), finished.append)
    os.kill(first, signal.SIGKILL)
    poller.wait_for(finished)
    for error in (*answers, *finished):
        assert error is not None
        assert error.errno == errno.EPIPE
        assert "status -9" in str(error)
    assert len(answers) == 1
    assert poller.outcome(flusher, BackgroundJob(replace=(Replacement("b", b"b"),))) is None
    assert flusher.pid not in (None, first)
    assert tree(tmp_path / "data") == {"b": b"b"}


def test_close_finishes_what_was_submitted_and_calls_no_done(
    tmp_path: Path, flusher: Flusher, poller: Poller
) -> None:
    answers: list[OSError | None] = []
    for index in range(5):
        job = BackgroundJob(replace=(Replacement(f"f{index}", bytes([index]) * 200_000),))
        flusher.submit(job, answers.append)
    pid = flusher.pid
    flusher.close()
    assert answers == []
    assert tree(tmp_path / "data") == {f"f{i}": bytes([i]) * 200_000 for i in range(5)}
    with pytest.raises(ProcessLookupError):
        os.kill(pid or 0, 0)


def test_close_raises_the_first_unreported_error(flusher: Flusher, poller: Poller) -> None:
    answers: list[OSError | None] = []
    flusher.submit(BackgroundJob(), answers.append)
    flusher.submit(BackgroundJob(replace=(Replacement("no/a", b""),)), answers.append)
    flusher.submit(BackgroundJob(zero_fill=(("no/b", 1),)), answers.append)
    with pytest.raises(FileNotFoundError, match=r"no/a\.new"):
        flusher.close()
    assert answers == []


def test_close_raises_when_the_process_died_with_work_left(
    flusher: Flusher, poller: Poller
) -> None:
    poller.outcome(flusher, BackgroundJob())
    assert flusher.pid is not None
    wait_until_stopped(flusher.pid)
    flusher.submit(BackgroundJob(), lambda _: None)
    os.kill(flusher.pid, signal.SIGKILL)
    with pytest.raises(BrokenPipeError, match="1 jobs"):
        flusher.close()


def test_close_within_a_callback_completes_no_other_job(flusher: Flusher, poller: Poller) -> None:
    poller.outcome(flusher, BackgroundJob())
    assert flusher.pid is not None
    wait_until_stopped(flusher.pid)
    finished: list[OSError | None] = []
    others: list[OSError | None] = []

    def close(error: OSError | None) -> None:
        flusher.close()
        finished.append(error)

    flusher.submit(BackgroundJob(), close)
    for _ in range(9):
        flusher.submit(BackgroundJob(), others.append)
    os.kill(flusher.pid, signal.SIGCONT)
    poller.wait_for(finished)
    assert finished == [None]
    assert others == []


def test_process_outlives_the_signals_that_stop_a_broker(flusher: Flusher, poller: Poller) -> None:
    poller.outcome(flusher, BackgroundJob())
    pid = flusher.pid
    assert pid is not None
    assert os.getpgid(pid) != os.getpgid(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    assert poller.outcome(flusher, BackgroundJob(zero_fill=(("a", 1),))) is None
    assert flusher.pid == pid
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_process_inherits_no_descriptor_but_its_own(flusher: Flusher, poller: Poller) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.set_inheritable(True)
        poller.outcome(flusher, BackgroundJob())
        links = {int(p.name): os.readlink(p) for p in Path(f"/proc/{flusher.pid}/fd").iterdir()}
    assert set(links) == {0, 1, 2}
    assert links[0].startswith("pipe:")
    assert links[1].startswith("pipe:")


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_works_on_event_loops(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        flusher = Flusher(str(tmp_path), loop)
        finished: asyncio.Future[OSError | None] = loop.create_future()
        flusher.submit(BackgroundJob(replace=(Replacement("a", bytes(1 << 20)),)), lambda _: None)
        flusher.submit(BackgroundJob(replace=(Replacement("no/b", b""),)), finished.set_result)
        assert isinstance(await finished, FileNotFoundError)
        flusher.submit(BackgroundJob(zero_fill=(("c", 5),)), lambda _: None)
        flusher.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert tree(tmp_path) == {"a": bytes(1 << 20), "c": bytes(5)}


# ---- the parent dies

PARENT = """
import asyncio, os, sys
from dragoman.log.flusher import Flusher
from dragoman.operating_system import RealDisk
from dragoman.world import BackgroundJob, Replacement

async def main():
    lock = RealDisk(sys.argv[1]).lock("lock")
    flusher = Flusher(sys.argv[1], asyncio.get_running_loop(), lock)
    future = asyncio.get_running_loop().create_future()
    flusher.submit(BackgroundJob(), future.set_result)
    await future
    print(flusher.pid, flush=True)
    sys.stdin.readline()
    flusher.submit(BackgroundJob(replace=(Replacement("late", b"late"),)), print)
    print("submitted", flush=True)
    sys.stdin.readline()

asyncio.run(main())
"""


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        yield process
        process.kill()


def test_process_ends_with_its_parent_holds_the_lock_until_then_and_begins_nothing_more(
    tmp_path: Path, parent: subprocess.Popen[str]
) -> None:
    assert parent.stdin is not None
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    child = os.pidfd_open(pid)
    signal.pidfd_send_signal(child, signal.SIGSTOP)
    parent.stdin.write("\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "submitted\n"
    disk = RealDisk(str(tmp_path / "data"))
    # Who has the lock's descriptor has the lock. Looked at now, because the kernel wakes a stopped
    # process when its parent's death orphans its process group.
    held = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
    assert f"{disk.root}/lock" in held
    with pytest.raises(DirectoryInUseError):
        disk.lock("lock")
    parent.kill()
    parent.wait()
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(child, signal.SIGCONT)
    poll = select.poll()
    poll.register(child, select.POLLIN)
    assert poll.poll(30_000), "the process did not end"
    os.close(child)
    disk.lock("lock").release()
    assert disk.names("") == ["lock"]


# ---- starting and sending go wrong


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_process_that_cannot_be_started_is_an_error_of_submit_and_leaks_nothing(
    flusher: Flusher, poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_descriptors()
    for executable in ("/nonexistent/python", ""):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", executable)
            with pytest.raises(FileNotFoundError):
                flusher.submit(BackgroundJob(), lambda _: None)
    # What earlier tests left to the garbage collector may be closed meanwhile.
    assert open_descriptors() <= before
    assert poller.outcome(flusher, BackgroundJob()) is None


def test_a_job_sent_to_a_dead_process_fails_like_those_before_it(
    flusher: Flusher, poller: Poller
) -> None:
    poller.outcome(flusher, BackgroundJob())
    assert flusher.pid is not None
    os.kill(flusher.pid, signal.SIGKILL)
    os.waitid(os.P_PID, flusher.pid, os.WEXITED | os.WNOWAIT)
    error = poller.outcome(flusher, BackgroundJob())
    assert isinstance(error, BrokenPipeError)


def test_a_job_with_too_many_names_is_refused(
    flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.log.flusher._FRAME_BYTES_MAX", 1000)
    with pytest.raises(OSError, match="too large") as refused:
        flusher.submit(BackgroundJob(sync=("name",) * 100), lambda _: None)
    assert refused.value.errno == errno.EMSGSIZE
    assert flusher.pid is None


# ---- the script's own functions, in this process


@pytest.fixture(autouse=True)
def _nobodys_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve` remembers its parent; here it is forgotten again."""
    monkeypatch.setattr(flusher_process.Parent, "pid", None)


@pytest.mark.parametrize("name", JOBS)
def test_the_scripts_perform_leaves_what_worlds_perform_leaves(tmp_path: Path, name: str) -> None:
    roots = tmp_path / "script", tmp_path / "reference"
    for root in roots:
        prepare(root)
    flusher = Flusher(str(roots[0]), Poller())
    frame = flusher._frame(JOBS[name])
    with contextlib.suppress(OSError):
        flusher_process.perform(*marshal.loads(frame[4:]))
    with contextlib.suppress(OSError):
        perform(RealDisk(str(roots[1])), JOBS[name])
    assert tree(roots[0]) == tree(roots[1])


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("fdatasync", ((b"a",), (), (), ())),
        ("fsync", ((), (b"",), (), ())),
        ("pwrite", ((), (), ((b"n", b"data"),), ())),
        ("pwrite", ((), (), (), ((b"z", 5),))),
    ],
)
def test_an_error_of_a_descriptor_names_its_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    arguments: tuple[tuple[bytes | tuple[bytes, object], ...], ...],
) -> None:
    def fails(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    prepare(tmp_path)
    monkeypatch.setattr(os, call, fails)
    root = os.fsencode(tmp_path) + b"/"
    placed = [
        tuple(root + e if isinstance(e, bytes) else (root + e[0], *e[1:]) for e in part)
        for part in arguments
    ]
    with pytest.raises(OSError, match="broken") as raised:
        flusher_process.perform(*placed, (), 1000)  # type: ignore[arg-type]
    assert raised.value.errno == errno.EIO
    assert os.fsencode(raised.value.filename).startswith(root)


def test_partition_removed_before_a_large_sync_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "partitions").mkdir()
    root = os.fsencode(tmp_path) + b"/partitions/"
    files = tuple(root + b"%d-t-0/0.log" % number for number in range(BULK_SYNC_FILES_MIN))
    flusher_process.perform(files, (), (), (), (), BULK_SYNC_FILES_MIN)


def test_nothing_is_begun_for_a_parent_that_is_gone(tmp_path: Path) -> None:
    jobs_out, jobs_in = os.pipe()
    frame = Flusher(str(tmp_path), Poller())._frame(BackgroundJob(zero_fill=(("a", 3),)))
    os.write(jobs_in, frame)
    flusher_process.serve(jobs_out, -1, os.getppid() + 1, 1 << 20, 0)
    assert tree(tmp_path) == {}
    os.close(jobs_in)
    os.close(jobs_out)


@pytest.mark.parametrize("count", [1, BULK_SYNC_FILES_MIN])
def test_job_under_way_changes_nothing_after_the_parent_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """It dies while the content is being synced; the next one may have the files by then."""
    root = os.fsencode(tmp_path) + b"/"
    names = [b"%d" % n for n in range(count)]
    for name in names:
        (tmp_path / name.decode()).write_bytes(b"old")

    def dies(*_: object) -> None:
        monkeypatch.setattr(flusher_process.Parent, "pid", os.getppid() + 1)

    monkeypatch.setattr(flusher_process.Parent, "pid", os.getppid())
    monkeypatch.setattr(flusher_process, "_fdatasync", dies)
    monkeypatch.setattr(flusher_process, "_sync_all", dies)
    with pytest.raises(flusher_process.OrphanedError):
        flusher_process.perform(
            (), (), tuple((root + name, b"new") for name in names), (), (), BULK_SYNC_FILES_MIN
        )
    assert {(tmp_path / name.decode()).read_bytes() for name in names} == {b"old"}


def test_file_is_not_filled_any_more_when_the_parent_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = flusher_process._write

    def dies(fd: int, path: bytes, data: memoryview, position: int) -> None:
        monkeypatch.setattr(flusher_process.Parent, "pid", os.getppid() + 1)
        write(fd, path, data, position)

    monkeypatch.setattr(flusher_process.Parent, "pid", os.getppid())
    monkeypatch.setattr(flusher_process, "_write", dies)
    path = tmp_path / "z"
    with pytest.raises(flusher_process.OrphanedError):
        flusher_process.perform((), (), (), ((os.fsencode(path), 3 << 20),), (), 1000)
    assert path.stat().st_size == 1 << 20


def test_serve_answers_each_job_and_ends_with_its_input(tmp_path: Path) -> None:
    jobs_out, jobs_in = os.pipe()
    replies_out, replies_in = os.pipe()
    flusher = Flusher(str(tmp_path), Poller())
    for job in (BackgroundJob(zero_fill=(("a", 3),)), BackgroundJob(zero_fill=(("a", 3),))):
        os.write(jobs_in, flusher._frame(job))
    os.close(jobs_in)
    served = threading.Thread(
        target=flusher_process.serve, args=(jobs_out, replies_in, os.getppid(), 1 << 20, 0)
    )
    served.start()
    served.join()
    os.close(replies_in)
    replies = os.read(replies_out, 4096)
    assert str(tmp_path / "a").encode() in replies
    assert (tmp_path / "a").read_bytes() == b"\0\0\0"
    os.close(jobs_out)
    os.close(replies_out)


def test_a_frame_longer_than_allowed_is_refused_before_memory_is_taken() -> None:
    out, into = os.pipe()
    os.write(into, (1 << 31).to_bytes(4, "little"))
    with pytest.raises(ValueError, match="at most 100"):
        flusher_process.read_frame(out, 100)
    os.close(into)
    os.close(out)


def test_a_frame_cut_off_counts_as_the_end() -> None:
    out, into = os.pipe()
    os.write(into, (5).to_bytes(4, "little") + b"abc")
    os.close(into)
    assert flusher_process.read_frame(out, 100) is None
    os.close(out)


def test_what_the_process_writes_to_stderr_is_logged(
    tmp_path: Path, poller: Poller, caplog: pytest.LogCaptureFixture
) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; sys.stderr.write('one\\ntwo'); sys.exit(3)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dragoman.log.flusher._SCRIPT", str(script))
        flusher = Flusher(str(tmp_path), poller)
        outcome = poller.outcome(flusher, BackgroundJob())
    assert "status 3" in str(outcome)
    lines = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert lines == [("ERROR", "the flusher process: one"), ("ERROR", "the flusher process: two")]
    assert poller.watched() == 0
