"""`Flusher`: the background port as a separate process.

A sync in a thread waits for the interpreter lock of a busy loop; a sync on the loop blocks all
other work. A process has neither problem (decision 10 has the figures). It is a bare interpreter
running `flusher_process.py`, started at the first job and connected by two pipes: one for jobs, one
for replies in the same order.

    submit ─► frame ─► pipe ─► process ─► pipe ─► reply ─► done(error)
                 └ queued while the pipe is full, sent when it is writable again

The loop side never blocks, except in `close`. The process inherits the pipes and, if given, the
data directory's lock, and no other descriptor. A third pipe has its standard error, whose lines go
to the log. It has a process group of its own and
blocks the signals that stop a broker, so a clean stop can still use it. It ends when its input
does, at the latest with this process. While it still works after a crash of this process, the lock
keeps a new broker out.

When the process dies unexpectedly, every job without a reply fails; the next job starts another
process.
"""

from __future__ import annotations

import errno
import logging
import marshal
import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from dragoman.limits import (
    BACKGROUND_JOB_BYTES_MAX,
    BULK_SYNC_FILES_MIN,
    FLUSHER_NAMES_BYTES_MAX,
    FLUSHER_REPLY_BYTES_MAX,
)
from dragoman.operating_system import child_environment, platforms
from dragoman.world import BackgroundJob, admit

Done: TypeAlias = Callable[[OSError | None], None]

log = logging.getLogger("dragoman.log")
_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "flusher_process.py")
_LENGTH_BYTES = 4
_READ_BYTES = 1 << 16
_FRAME_BYTES_MAX = BACKGROUND_JOB_BYTES_MAX + FLUSHER_NAMES_BYTES_MAX
#: Signals that a terminal sends to all its processes, and a service manager to all of a service.
_STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Readiness(Protocol):
    """The part of an event loop that watches descriptors; every asyncio loop has it."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> object: ...

    def remove_reader(self, fd: int, /) -> object: ...

    def add_writer(self, fd: int, callback: Callable[[], object], /) -> object: ...

    def remove_writer(self, fd: int, /) -> object: ...


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


class Flusher:
    """Runs jobs on the files below `root`, the directory of a `RealDisk`."""

    def __init__(self, root: str, readiness: Readiness, lock: HasDescriptor | None = None) -> None:
        self._root = os.fsencode(os.path.abspath(root))
        self._readiness = readiness
        self._lock = lock
        #: Callbacks of jobs without a reply, each with the size of its file contents.
        self._waiting: deque[tuple[Done, int]] = deque()
        self._waiting_bytes = 0
        self._process: _Process | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process while it runs, else None."""
        return None if self._process is None else self._process.pid

    def submit(self, job: BackgroundJob, done: Done) -> None:
        assert not self._closed, "a job was submitted after close"
        size = admit(job, len(self._waiting), self._waiting_bytes)
        frame = self._frame(job)
        if self._process is None:
            lock_fds = () if self._lock is None else (self._lock.fileno(),)
            self._process = _Process(lock_fds, self._readiness, self._received, self._died)
        self._waiting.append((done, size))
        self._waiting_bytes += size
        self._process.send(frame)

    def close(self) -> None:
        self._closed = True
        process, self._process = self._process, None
        if process is None:
            return
        errors = [error for error in process.finish() if error is not None]
        unanswered = len(self._waiting) - process.replies_at_finish
        self._waiting.clear()
        if errors:
            raise errors[0]
        if unanswered:
            raise _death(process.status, unanswered)

    def _received(self, error: OSError | None) -> None:
        done, size = self._waiting.popleft()
        self._waiting_bytes -= size
        done(error)

    def _died(self, status: int) -> None:
        self._process = None
        waiting = [done for done, _ in self._waiting]
        self._waiting.clear()
        self._waiting_bytes = 0
        for done in waiting:
            if not self._closed:
                done(_death(status, len(waiting)))

    def _frame(self, job: BackgroundJob) -> bytes:
        path = self._path
        payload = marshal.dumps(
            (
                tuple(map(path, job.sync)),
                tuple(map(path, job.sync_directories)),
                tuple((path(each.path), bytes(each.data)) for each in job.replace),
                tuple((path(name), size) for name, size in job.zero_fill),
                tuple((path(name), position, size) for name, position, size in job.write_out),
                BULK_SYNC_FILES_MIN if platforms.HAS_SYNCFS else sys.maxsize,
            )
        )
        if len(payload) > _FRAME_BYTES_MAX:
            raise OSError(errno.EMSGSIZE, f"a background job of {len(payload)} bytes is too large")
        return len(payload).to_bytes(_LENGTH_BYTES, "little") + payload

    def _path(self, path: str) -> bytes:
        return self._root + b"/" + os.fsencode(path) if path else self._root


class _Process:
    """One flusher process: its pipes, unsent jobs and unparsed replies."""

    def __init__(
        self,
        lock_fds: tuple[int, ...],
        readiness: Readiness,
        received: Done,
        died: Callable[[int], None],
    ) -> None:
        self._readiness = readiness
        self._received = received
        self._died = died
        self._unsent: deque[memoryview] = deque()
        self._inbox = bytearray()
        self._is_open = True
        #: The beginning of a line on its standard error.
        self._complaint = b""
        #: Replies that arrived while `finish` waited for the end.
        self.replies_at_finish = 0
        self._start(lock_fds)
        self._readiness.add_reader(self._replies_fd, self._on_readable)
        self._readiness.add_reader(self._errors_fd, self._log_errors)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def status(self) -> int:
        return self._popen.wait()

    def _start(self, lock_fds: tuple[int, ...]) -> None:
        if not sys.executable:
            raise OSError(errno.ENOENT, "no Python interpreter to run the flusher with")
        (jobs_out, self._jobs_fd), replies, errors = _pipes(3)
        self._replies_fd, replies_in = replies
        self._errors_fd, errors_in = errors
        numbers = (os.getpid(), _FRAME_BYTES_MAX, platforms.FULL_SYNC)
        command = [sys.executable, "-I", "-S", _SCRIPT, *map(str, numbers)]
        # A new process inherits the mask, so no signal can reach it before it sets its own.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            self._popen = subprocess.Popen(
                command,
                stdin=jobs_out,
                stdout=replies_in,
                stderr=errors_in,
                cwd="/",
                env=child_environment(os.environ),
                close_fds=True,
                pass_fds=lock_fds,
                process_group=0,
            )
        except BaseException:
            os.close(self._jobs_fd)
            os.close(self._replies_fd)
            os.close(self._errors_fd)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(jobs_out)
            os.close(replies_in)
            os.close(errors_in)
        for fd in (self._jobs_fd, self._replies_fd, self._errors_fd):
            os.set_blocking(fd, False)

    # ---- sending

    def send(self, frame: bytes) -> None:
        self._unsent.append(memoryview(frame))
        if len(self._unsent) == 1 and not self._write_some():
            self._readiness.add_writer(self._jobs_fd, self._on_writable)

    def _on_writable(self) -> None:
        if self._is_open and self._write_some():
            self._readiness.remove_writer(self._jobs_fd)

    def _write_some(self) -> bool:
        """Write until the pipe is full. True when nothing is left to write."""
        try:
            while self._unsent:
                written = os.write(self._jobs_fd, self._unsent[0])
                self._unsent[0] = self._unsent[0][written:]
                if not self._unsent[0]:
                    self._unsent.popleft()
        except BlockingIOError:
            return False
        except BrokenPipeError:
            # The process died. The end of its replies reports that, too, and is handled there.
            self._unsent.clear()
        return True

    # ---- receiving

    def _on_readable(self) -> None:
        # A poller may deliver an event that it had found before the descriptor was removed.
        if not self._is_open:
            return
        if self._read_some():
            while self._is_open and (reply := self._next_reply()) is not None:
                self._received(_error_of(reply))
        else:
            self._close_pipes()
            self._died(self.status)

    def _read_some(self) -> bool:
        """Read all available replies. False at the end of the pipe."""
        try:
            data = os.read(self._replies_fd, _READ_BYTES)
        except BlockingIOError:
            return True
        self._inbox += data
        return bool(data)

    def _next_reply(self) -> tuple[int, bytes] | None:
        if len(self._inbox) < _LENGTH_BYTES:
            return None
        length = int.from_bytes(self._inbox[:_LENGTH_BYTES], "little")
        assert length <= FLUSHER_REPLY_BYTES_MAX, "the flusher process sent something else"
        end = _LENGTH_BYTES + length
        if len(self._inbox) < end:
            return None
        number, path = marshal.loads(self._inbox[_LENGTH_BYTES:end])
        del self._inbox[:end]
        return number, path

    def _log_errors(self) -> None:
        """Log what the process has written to its standard error, a line each."""
        data = b"x"
        while self._is_open and data:
            try:
                data = os.read(self._errors_fd, _READ_BYTES)
            except BlockingIOError:
                return
            *lines, self._complaint = (self._complaint + data).split(b"\n")
            if not data:
                self._readiness.remove_reader(self._errors_fd)
            # A line is logged in pieces if it is this long, and its last one even without an end.
            if not data or len(self._complaint) >= _READ_BYTES:
                lines.append(self._complaint)
                self._complaint = b""
            for line in filter(None, lines):
                text = line.decode(errors="replace")
                log.error("the flusher process: %s", text, extra={"source": "flusher"})

    # ---- the end

    def finish(self) -> list[OSError | None]:
        """Wait until all jobs are done and the process has ended. Returns their outcomes."""
        self._readiness.remove_reader(self._replies_fd)
        self._readiness.remove_writer(self._jobs_fd)
        # Both pipes are served: with one of them full, the two processes would deadlock.
        poll = select.poll()
        poll.register(self._replies_fd, select.POLLIN)
        if self._write_some():
            self._close_jobs()
        else:
            poll.register(self._jobs_fd, select.POLLOUT)
        # When called from within a `done`, some replies may be read and not delivered yet.
        errors = self._all_replies()
        while True:
            for fd, _ in poll.poll():
                if fd == self._replies_fd:
                    if not self._read_some():
                        self._close_pipes()
                        self._popen.wait()
                        return errors
                    errors += self._all_replies()
                elif self._write_some():
                    poll.unregister(fd)
                    self._close_jobs()

    def _all_replies(self) -> list[OSError | None]:
        errors = []
        while (reply := self._next_reply()) is not None:
            errors.append(_error_of(reply))
        self.replies_at_finish += len(errors)
        return errors

    def _close_jobs(self) -> None:
        os.close(self._jobs_fd)
        self._jobs_fd = -1

    def _close_pipes(self) -> None:
        # The process has ended, or is about to: what it said last is in the pipe.
        self._log_errors()
        self._is_open = False
        self._readiness.remove_reader(self._replies_fd)
        self._readiness.remove_reader(self._errors_fd)
        if self._jobs_fd >= 0:
            self._readiness.remove_writer(self._jobs_fd)
            self._close_jobs()
        os.close(self._replies_fd)
        os.close(self._errors_fd)


def _pipes(count: int) -> list[tuple[int, int]]:
    """Pipes, all or none. Raises `OSError`."""
    made: list[tuple[int, int]] = []
    try:
        while len(made) < count:
            made.append(os.pipe())
    except OSError:
        for pair in made:
            os.close(pair[0])
            os.close(pair[1])
        raise
    return made


def _error_of(reply: tuple[int, bytes]) -> OSError | None:
    number, path = reply
    return OSError(number, os.strerror(number), os.fsdecode(path)) if number else None


def _death(status: int, jobs: int) -> OSError:
    return OSError(
        errno.EPIPE,
        f"the flusher process ended with status {status} before it had done {jobs} jobs",
    )
