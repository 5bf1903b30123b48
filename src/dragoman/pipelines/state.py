"""The state of a pipeline outside its own process: a folder with status and checkpoints.

NAME/lock            held by the process that runs the pipeline
NAME/status.json     a recent status; replaced atomically
NAME/checkpoints/    one folder for each sink and job, unless the file names another place
NAME/spark.log       Spark's warnings and errors
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal, TypeAlias

import msgspec

from dragoman.api.values import PipelinePart, PipelineStatus
from dragoman.errors import ConfigError, DragomanError
from dragoman.limits import PIPELINE_STATUS_BYTES_MAX
from dragoman.operating_system import platforms
from dragoman.pipelines.definition import check_name

PipelineState: TypeAlias = Literal[
    "starting", "running", "stopping", "stopped", "done", "failed", "died"
]
Status: TypeAlias = PipelineStatus
ENDED = frozenset(("stopped", "done", "failed", "died"))
_POLL_S = 0.1
#: How long to wait for the lock, which a process that checks whether the pipeline runs holds
#: briefly.
_LOCK_WAIT_S = 0.5


class AlreadyRunningError(DragomanError):
    """Another process runs this pipeline."""


def default_root() -> Path:
    named = os.environ.get("XDG_STATE_HOME")
    return (Path(named) if named else Path.home() / ".local" / "state") / "dragoman" / "pipelines"


def new_status(name: str, file: str, master: str) -> Status:
    now = now_ms()
    return Status(
        name=name,
        file=file,
        master=master,
        pid=os.getpid(),
        host=socket.gethostname(),
        started_ms=now,
        updated_ms=now,
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class StateFolder:
    def __init__(self, root: Path, name: str) -> None:
        try:
            check_name(name)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self.name = name
        self.path = root / name

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock of the process that runs the pipeline. Raises `AlreadyRunningError`."""
        self.path.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + _LOCK_WAIT_S
        with (self.path / "lock").open("w") as file:
            while not _is_locked(file):
                if time.monotonic() > deadline:
                    raise AlreadyRunningError(
                        f"pipeline {self.name} is already running; `dragoman pipeline stop "
                        f"{self.name}` stops it"
                    )
                time.sleep(_POLL_S)
            yield

    def check_file(self, file: str) -> None:
        """Raises `ConfigError` when the checkpoints here belong to another file that exists."""
        known = self._written()
        is_other = known is not None and known.file != file
        if is_other and known is not None and os.path.exists(known.file):
            raise ConfigError(
                f"{file}: the pipeline of {known.file} has this name and its checkpoints in "
                f"{self.path}; choose another name, or another folder with --state"
            )

    def write(self, status: Status) -> None:
        temporary = self.path / "status.json.new"
        temporary.write_bytes(msgspec.json.encode(status))
        temporary.replace(self.path / "status.json")

    def status(self) -> Status | None:
        """None when this pipeline was never run here."""
        found = self._written()
        if found is None or found.state in ENDED or self.is_held():
            return found
        return msgspec.structs.replace(
            found, state="died", problem="its process ended without a report: was it killed?"
        )

    def is_held(self) -> bool:
        try:
            with (self.path / "lock").open() as file:
                return not platforms.lock(file.fileno(), is_shared=True)
        except OSError:
            return False

    def stop(self, patience_s: float) -> bool:
        """Stop the process after the current batch, or kill it after `patience_s`.

        True when it stopped without being killed. Raises `ConfigError` when it is not running here.
        """
        found = self.status()
        if found is None or not self.is_held():
            raise ConfigError(f"pipeline {self.name} is not running")
        if found.host != socket.gethostname():
            raise ConfigError(f"pipeline {self.name} runs on {found.host}: stop it there")
        with suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGTERM)
            if self._is_free_within(patience_s):
                return True
            os.kill(found.pid, signal.SIGKILL)
        return not self._is_free_within(patience_s)

    def _is_free_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.is_held():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def checkpoint(self, part: str) -> str:
        return str(self.path / "checkpoints" / part)

    @property
    def log(self) -> Path:
        return self.path / "spark.log"

    def _written(self) -> Status | None:
        try:
            with (self.path / "status.json").open("rb") as file:
                data = file.read(PIPELINE_STATUS_BYTES_MAX)
            return msgspec.json.decode(data, type=Status)
        except (OSError, msgspec.DecodeError):
            return None


def _is_locked(file: IO[str]) -> bool:
    """Try to lock the file; whether this process now holds the lock."""
    return platforms.lock(file.fileno())


def known_pipelines(root: Path) -> list[Status]:
    """The status of every pipeline that was run here, by name."""
    try:
        names = sorted(each.name for each in root.iterdir() if each.is_dir())
    except OSError:
        return []
    found = []
    for name in names:
        # Folders of other programs may be there.
        with suppress(ConfigError):
            found.append(StateFolder(root, name).status())
    return [status for status in found if status is not None]


PartState: TypeAlias = Literal["starting", "running", "done", "failed", "stopped"]
Progress: TypeAlias = PipelinePart

#: Called by jobs with new progress. It may raise an exception to stop a job, which must not catch
#: it.
Report: TypeAlias = Callable[[Progress], None]
