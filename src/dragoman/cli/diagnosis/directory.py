"""Checks of a data directory that no node uses, and of what a node would find when it starts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

from dragoman.cli.diagnosis import machine
from dragoman.cli.diagnosis.console import queries
from dragoman.cli.diagnosis.finding import Finding, ok, problem, warning
from dragoman.config.settings import Settings
from dragoman.data_directory import foreign_names
from dragoman.errors import CorruptionError, FormatError
from dragoman.limits import CLOCK_JUMP_S, DOCTOR_FILES_MAX, DOCTOR_FINDINGS_MAX
from dragoman.log.inspect import Finding as Found
from dragoman.log.inspect import NodeFound, Problem, inspect_disk
from dragoman.log.node import FEATURE_LEVEL, NODE_FILE, has_data, read_node_state
from dragoman.operating_system import RealDisk, platforms


def checks(directory: str, settings: Settings) -> Iterator[Finding]:
    """All checks of a directory, and of the settings with which a node would use it."""
    is_used = False
    if os.path.isdir(directory):
        for each in _existing(directory, settings):
            is_used |= each.check == "lock" and each.level != "ok"
            yield each
    else:
        yield from _missing(directory)
    yield machine.descriptors()
    if any(each.base == "console" for each in settings.listeners):
        yield queries()
    if not is_used:
        # The ports of a node that runs are taken, by itself.
        yield from (machine.port(each) for each in settings.listeners)


def _missing(directory: str) -> Iterator[Finding]:
    parent = os.path.dirname(os.path.abspath(directory))
    if os.path.lexists(directory):
        yield problem("directory", f"{directory} is no directory", "name the data directory")
    elif os.path.isdir(parent) and os.access(parent, os.W_OK | os.X_OK):
        yield ok("directory", f"{directory} does not exist: the first start creates it")
        yield machine.room(parent)
    else:
        remedy = f"`mkdir -p {parent}`, owned by the user of the node"
        yield problem("directory", f"{parent} does not exist, or cannot be written", remedy)


def _existing(directory: str, settings: Settings) -> Iterator[Finding]:
    if not os.access(directory, os.R_OK | os.X_OK):
        yield problem("directory", f"{directory} cannot be read", _as_owner(directory))
        return
    others = foreign_names(directory, settings.files())
    if others:
        what = f"{directory} is no data directory: it has {', '.join(others[:3])}"
        yield problem("directory", what, "name the data directory, or an empty one")
        return
    found: list[Found] = []
    if _has_node(directory):
        with suppress(FormatError):
            # `node_file` reports it.
            found += inspect_disk(RealDisk(directory), is_quick=True)
    if is_in_use(found):
        remedy = f"`dragoman doctor --server unix:{directory}` checks the node"
        yield warning("lock", "a node is using the directory", remedy)
    else:
        yield ok("lock", "no process uses the directory")
    yield permissions(directory)
    yield machine.room(directory)
    yield node_file(directory, is_used=is_in_use(found))
    yield clock(directory)
    yield from damage(directory, [each for each in found if isinstance(each, Problem)])


def is_in_use(found: Iterable[Found]) -> bool:
    return any(isinstance(each, NodeFound) and each.is_in_use for each in found)


def _has_node(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, NODE_FILE))


def permissions(directory: str) -> Finding:
    """Whether this user may read and write all files, and others none but those that are shared."""
    own = platforms.own_user()
    for path in islice(_paths(directory), DOCTOR_FILES_MAX):
        owner = os.stat(path, follow_symlinks=False).st_uid
        if owner != own:
            what = f"{path} belongs to {_name(owner)}, and this command runs as {_name(own)}"
            return problem("permissions", what, _as_owner(directory))
        if not os.access(path, os.R_OK | os.W_OK):
            return problem(
                "permissions", f"{path} cannot be written", f"`chmod u+rwX -R {directory}`"
            )
    mode = os.stat(directory).st_mode
    if mode & 0o002:
        what = f"every user may write to {directory}"
        return problem("permissions", what, f"`chmod o-rwx {directory}`")
    return ok("permissions", f"all files belong to {_name(own)}")


def _paths(directory: str) -> Iterator[str]:
    yield directory
    for place, directories, names in os.walk(directory):
        yield from (os.path.join(place, each) for each in (*directories, *names))


def _name(user: int) -> str:
    try:
        return platforms.user_name(user)
    except KeyError:
        return f"user {user}"


def _as_owner(directory: str) -> str:
    owner, own = _name(os.stat(directory).st_uid), _name(platforms.own_user())
    return f"run it as {owner}, the owner of the directory, or `chown -R {own} {directory}`"


def node_file(directory: str, *, is_used: bool = False) -> Finding:
    """Whether `node.json` can be read, and this release knows the format and the features."""
    if not _has_node(directory):
        if has_data(RealDisk(directory)):
            what = f"{NODE_FILE} is missing, although there is data"
            remedy = (
                f"restore it from a backup, or `dragoman log adopt {directory}` (one node only)"
            )
            return problem("node.json", what, remedy)
        return ok("node.json", "the directory is empty")
    try:
        node = read_node_state(RealDisk(directory))
    except FormatError as error:
        return problem("node.json", str(error), "run the release that wrote it, or a newer one")
    except CorruptionError as error:
        remedy = f"restore it from a backup, or `dragoman log adopt {directory}` (one node only)"
        return problem("node.json", str(error), remedy)
    except OSError as error:
        return problem("node.json", str(error), _as_owner(directory))
    said = f"format {node.format}, feature level {node.feature_level} of {FEATURE_LEVEL}"
    if not node.is_clean and not is_used:
        return ok("node.json", f"{said}; the last stop was not clean, the next start recovers")
    return ok("node.json", said)


def clock(directory: str) -> Finding:
    """Whether files were written later than now: the clock has gone back since."""
    newest = os.stat(directory).st_mtime
    for path in islice(_paths(directory), DOCTOR_FILES_MAX):
        newest = max(newest, os.stat(path, follow_symlinks=False).st_mtime)
    ahead = newest - time.time()
    if ahead > CLOCK_JUMP_S:
        what = f"a file was written {ahead:.0f} s from now: the clock has gone back"
        return warning("clock", what, "`timedatectl status`, and have NTP set the clock")
    return ok("clock", "no file is from the future")


def damage(directory: str, found: list[Problem]) -> Iterator[Finding]:
    """Missing, short and damaged files, without reading segments."""
    real = [each for each in found if each.is_damage]
    if not real:
        yield ok("damage", f"none found; `dragoman log verify {directory}` reads every byte")
        return
    remedy = (
        f"`dragoman log verify {directory}`, then `dragoman log repair {directory} --dry-run`; in "
        "a cluster the node copies damaged records from others when it starts"
    )
    for each in real[:DOCTOR_FINDINGS_MAX]:
        yield problem("damage", f"{each.path} at byte {each.position}: {each.reason}", remedy)
    if len(real) > DOCTOR_FINDINGS_MAX:
        yield problem("damage", f"{len(real) - DOCTOR_FINDINGS_MAX} further findings", remedy)
