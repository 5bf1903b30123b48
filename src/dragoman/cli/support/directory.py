"""What a data directory shows, also while a node uses it. No records are read."""

from __future__ import annotations

import os
from itertools import islice

import msgspec

from dragoman.cli.diagnosis import directory as diagnosis
from dragoman.cli.support.collection import Collection
from dragoman.config.settings import Settings
from dragoman.limits import BUNDLE_ENTRIES_MAX
from dragoman.log.inspect import inspect_disk
from dragoman.operating_system import RealDisk


class Entry(msgspec.Struct, frozen=True):
    """A file or a directory."""

    path: str
    size: int
    mode: str
    modified_ms: int


def collect(directory: str, settings: Settings, files: Collection) -> None:
    files.gather("directory/files.json", lambda: _listing(directory, files))
    files.gather("directory/inspect.json", lambda: _inspected(directory, files))
    files.gather(
        "directory/doctor.json",
        lambda: msgspec.json.encode(list(diagnosis.checks(directory, settings))),
    )


def _listing(directory: str, files: Collection) -> bytes:
    if not os.path.isdir(directory):
        raise FileNotFoundError(f"{directory} is no directory")
    found: list[Entry] = []
    for place, directories, names in os.walk(directory):
        for name in sorted((*directories, *names)):
            if len(found) == BUNDLE_ENTRIES_MAX:
                files.miss("directory/files.json", f"only the first {BUNDLE_ENTRIES_MAX} files")
                return msgspec.json.encode(found)
            path = os.path.join(place, name)
            try:
                state = os.stat(path, follow_symlinks=False)
            except FileNotFoundError:
                # The node has just deleted it.
                continue
            shown = os.path.relpath(path, directory)
            found.append(Entry(shown, state.st_size, oct(state.st_mode), int(state.st_mtime * 1e3)))
    return msgspec.json.encode(found)


def _inspected(directory: str, files: Collection) -> bytes:
    found = list(islice(inspect_disk(RealDisk(directory), is_quick=True), BUNDLE_ENTRIES_MAX + 1))
    if len(found) > BUNDLE_ENTRIES_MAX:
        files.miss("directory/inspect.json", f"only the first {BUNDLE_ENTRIES_MAX} findings")
    return msgspec.json.encode(found[:BUNDLE_ENTRIES_MAX])
