"""This machine, the settings that a node would use here, the end of a log, and the process that
uses a data directory.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path

import msgspec

from dragoman import __version__
from dragoman.cli.serve import read_configuration
from dragoman.cli.support.collection import Collection
from dragoman.config.layers import ENVIRONMENT_FILE, ENVIRONMENT_PREFIX, ConfigFile, Flags, load
from dragoman.config.reference import toml_listing
from dragoman.limits import BUNDLE_LOG_BYTES_MAX
from dragoman.operating_system import platforms

#: Of a process, what the kernel shows of it.
_PROCESS_FILES = ("status", "limits", "io", "cmdline", "stat", "schedstat", "wchan")


def collect(
    files: Collection,
    *,
    config: str,
    log_file: str,
    directory: str | None,
    environment: Mapping[str, str] = os.environ,
) -> None:
    files.gather("machine.json", lambda: msgspec.json.encode(_machine(directory, environment)))
    config = config or environment.get(ENVIRONMENT_FILE, "")
    if config:
        files.gather("settings/file.toml", lambda: read_configuration(config).text.encode())
    files.gather("settings/effective.toml", lambda: _settings(config, environment))
    if log_file:
        files.gather("log.txt", lambda: _end_of(log_file))
    else:
        files.miss("log.txt", "no --log-file was given")
    if directory is not None:
        _processes(directory, files)


def _machine(directory: str | None, environment: Mapping[str, str]) -> dict[str, object]:
    place = directory if directory is not None and os.path.isdir(directory) else os.getcwd()
    usage = shutil.disk_usage(place)
    return {
        "dragoman": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "disk": {"total_bytes": usage.total, "free_bytes": usage.free},
        "memory": _text("/proc/meminfo").splitlines()[:5],
        "pressure": {name: _text(f"/proc/pressure/{name}") for name in ("cpu", "io", "memory")},
        "packages": dict(sorted(_packages())),
        "environment": {
            name: value
            for name, value in sorted(environment.items())
            if name.startswith(ENVIRONMENT_PREFIX)
        },
    }


def _packages() -> Iterator[tuple[str, str]]:
    """The installed versions of what Dragoman depends on, with all extras."""
    for requirement in metadata.requires("dragoman") or ():
        name = requirement.split(";")[0].split("[")[0]
        name = name.rstrip("0123456789.,<>=!~ ").strip()
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def _settings(config: str, environment: Mapping[str, str]) -> bytes:
    file: ConfigFile | None = read_configuration(config) if config else None
    found = load(file=file, environment=environment, flags=Flags())
    return toml_listing(found, origins=True).encode()


def _end_of(path: str) -> bytes:
    """The last whole lines of a log."""
    with open(path, "rb", opener=platforms.never_waiting) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - BUNDLE_LOG_BYTES_MAX))
        data = file.read(BUNDLE_LOG_BYTES_MAX)
    return data if size <= BUNDLE_LOG_BYTES_MAX else data.partition(b"\n")[2]


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


# ---- processes


def _processes(directory: str, files: Collection) -> None:
    """What the kernel shows of the processes that have files of the directory open."""
    found = list(_users_of(directory))
    if not found:
        files.miss("process", "no process of this user has files of the directory open")
        return
    for process in found:
        for name in _PROCESS_FILES:
            path = f"/proc/{process}/{name}"
            files.gather(f"process/{process}/{name}.txt", partial(_process_file, path))
    files.miss("process/stacks", f"`py-spy dump --pid {found[0]}` shows the stacks of a process")


def _users_of(directory: str) -> Iterator[int]:
    real = os.path.realpath(directory) + os.sep
    for process in sorted(int(each) for each in _names("/proc") if each.isdigit()):
        if process == os.getpid():
            continue
        for number in _names(f"/proc/{process}/fd"):
            try:
                opened = os.readlink(f"/proc/{process}/fd/{number}")
            except OSError:
                continue
            if opened.startswith(real):
                yield process
                break


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _process_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read().replace(b"\0", b" ")
