"""The process of a node: `dragoman serve`, and work on a data directory that no node uses.

A signal stops the node cleanly; a second one ends the process at once, and the next start recovers.
SIGHUP makes it read its certificates again. SIGUSR1 switches the log to the level debug, and back.
A service manager that gives the process a socket for notifications, as systemd does, hears when the
node is ready and when it stops.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec

from dragoman.config.listeners import ListenerSecurity
from dragoman.config.posture import exposed, exposure, remedy
from dragoman.config.settings import Settings
from dragoman.data_directory import open_data_directory, refuse_other_directory, restored_unless
from dragoman.errors import ConfigError, CorruptionError, LogError
from dragoman.limits import OPEN_SEGMENTS_MAX
from dragoman.log.node import NODE_FILE, SECURITY_LEVEL, read_node_state
from dragoman.net.event_loop import new_event_loop
from dragoman.net.listener import OpenListener
from dragoman.net.password_hasher import ThreadedHasher
from dragoman.operating_system import (
    RealDisk,
    SystemClock,
    allow_open_files,
    open_files_max,
    system_random,
)
from dragoman.server import Node
from dragoman.shared_directory import close_directory
from dragoman.telemetry import lifecycle
from dragoman.telemetry.logs import toggle_debug

log = logging.getLogger("dragoman.server")

#: Longest wait for a service manager whose socket is full; the notification is then lost.
_NOTIFICATION_S = 1.0


def run(settings: Settings, announce: Callable[[str], None]) -> int:
    """Run a node until a signal, and return the exit status. Raises what prevents the start.

    The status is 0 after a clean stop, 1 when the log or the metadata failed, 130 when a second
    signal forced the end.
    """
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_serve(settings, loop, announce))
    finally:
        loop.close()


async def _serve(
    settings: Settings, loop: asyncio.AbstractEventLoop, announce: Callable[[str], None]
) -> int:
    stopping = asyncio.Event()

    def stop_requested(number: signal.Signals) -> None:
        if stopping.is_set():
            log.warning("forced to stop; the next start will recover")
            os._exit(130)
        lifecycle.stopping(number.name)
        stopping.set()

    check_posture(settings)
    allow_open_files()
    node: Node | None = None
    try:
        with restored_unless(settings.data, lambda: node is not None and node.is_known):
            # Where the limit of open files is low, connections get most of the descriptors.
            node = _node(settings, loop, min(OPEN_SEGMENTS_MAX, open_files_max() // 4))
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop_requested, number)
            loop.add_signal_handler(signal.SIGHUP, node.listeners.contexts.reload)
            loop.add_signal_handler(signal.SIGUSR1, toggle_debug, settings.log_level)
            lifecycle.starting(node.settings)
            if not await _started(node, stopping):
                return _ended(node, node.clock.monotonic())
    except (OSError, CorruptionError) as error:
        cure = _cure(settings, error) if isinstance(error, CorruptionError) else ""
        raise ConfigError(f"data directory {settings.data}: {error}{cure}") from error
    _calm_garbage_collector()
    for line in node.listeners.describe():
        announce(line)
    _log_start(node)
    announce("ready")
    notify_service_manager("READY=1")
    await _first_of(stopping, node.failed)
    began = node.clock.monotonic()
    if not stopping.is_set():
        lifecycle.stopping("a failure")
    notify_service_manager("STOPPING=1")
    await node.stop()
    return _ended(node, began)


def _ended(node: Node, stopping_since: float) -> int:
    """Log the end, and return the exit status."""
    status = _exit_status(node)
    now = node.clock.monotonic()
    lifecycle.stopped(now - stopping_since, now - node.started_at, status)
    return status


def _log_start(node: Node) -> None:
    if not log.isEnabledFor(logging.INFO):
        return
    image, listeners = node.broker.image, node.listeners
    lifecycle.listening(
        _listener_line(each, listeners.security_of(each)) for each in listeners.opened
    )
    contents = lifecycle.Contents(
        cluster_id=image.cluster_id,
        feature_level=image.feature_level,
        topics=len(image.topics),
        partitions=len(image.partitions),
    )
    lifecycle.ready(contents, node.clock.monotonic() - node.started_at)


def _listener_line(opened: OpenListener, security: ListenerSecurity) -> lifecycle.ListenerLine:
    # Without an address of its own, replies name the one on which each client came in.
    advertised = str(opened.advertised or "the client's")
    return lifecycle.ListenerLine(opened.name, str(opened.bound), advertised, security)


def check_posture(settings: Settings) -> None:
    """Raises `ConfigError` for listeners that other machines reach without a login, unless this is
    meant. A directory that an earlier release has made starts as it did there, with a warning.
    """
    found = [] if settings.insecure else exposed(settings)
    if not found:
        return
    if not _is_of_earlier_release(settings.data):
        raise ConfigError(f"{exposure(found)}: {remedy(found)}")
    log.warning(
        "%s, as in the release that made this data directory; %s", exposure(found), remedy(found)
    )


def _is_of_earlier_release(path: str) -> bool:
    # Before anything is created: a refused start leaves no directory behind.
    if not os.path.exists(os.path.join(path, NODE_FILE)):
        return False
    try:
        return read_node_state(RealDisk(path, 0)).feature_level < SECURITY_LEVEL
    except (OSError, LogError):
        # The start reports it.
        return True


def _node(settings: Settings, loop: asyncio.AbstractEventLoop, open_segments_max: int) -> Node:
    from dragoman.log.flusher import Flusher

    disk = open_data_directory(settings.data)
    _share(disk, settings.data_group)
    return Node(
        # Clients on this machine, such as Spark, open the files: they need the absolute path.
        msgspec.structs.replace(
            settings,
            data=disk.root,
            cluster_key_file=settings.cluster_key_file
            and os.path.abspath(settings.cluster_key_file),
            audit_log_file=settings.audit_log_file and os.path.abspath(settings.audit_log_file),
        ),
        loop,
        disk=disk,
        background=Flusher(disk.root, loop),
        clock=SystemClock(),
        random=system_random(),
        hasher=ThreadedHasher(loop.call_soon_threadsafe),
        open_segments_max=open_segments_max,
    )


def _share(disk: RealDisk, name: str) -> None:
    """Open the data directory to a group, or take it back. Raises `ConfigError`."""
    if not name:
        close_directory(disk.root)
        return
    import grp

    try:
        group = int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
        disk.share(group)
    except KeyError:
        raise ConfigError(f"data.group: there is no group {name}") from None
    except PermissionError:
        raise ConfigError(
            f"data.group: the node's user has to be a member of {name} and to own {disk.root}"
        ) from None


async def _started(node: Node, stopping: asyncio.Event) -> bool:
    """False when a signal arrived, or the log failed, before the node had joined its cluster."""
    starting = asyncio.ensure_future(node.start())
    ended = asyncio.ensure_future(_first_of(stopping, node.failed))
    await asyncio.wait((starting, ended), return_when=asyncio.FIRST_COMPLETED)
    is_started = starting.done()
    for each in (starting, ended):
        each.cancel()
    await asyncio.wait((starting, ended))
    if is_started:
        starting.result()
    return is_started


def notify_service_manager(state: str) -> None:
    """Send a state of this process to the service manager, where there is one: sd_notify(3)."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    # An address that begins with `@` is an abstract one, which is no file.
    address = f"\0{path[1:]}" if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(_NOTIFICATION_S)
        manager.sendto(state.encode(), address)


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(each.wait()) for each in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)


def _exit_status(node: Node) -> int:
    if node.failure is not None:
        log.critical("stopped: %s", node.failure)
        return 1
    return 0


def _cure(settings: Settings, error: CorruptionError) -> str:
    """The commands that repair a directory whose damage prevents the start. In a cluster, the other
    nodes have copies of all its data.
    """
    if len(settings.cluster) < 2:
        data = settings.data
        if error.path == NODE_FILE:
            return (
                f"; put it back from a backup, or run `dragoman log adopt {data}`, which rebuilds "
                "it from the other files"
            )
        return (
            f"; `dragoman log verify {data}` lists all damage, `dragoman log repair {data}` mends"
        )
    number = settings.node_id
    return (
        f"; the other nodes have it: `dragoman cluster remove {number} --keep-replicas`, start "
        f"with an empty directory, `dragoman cluster add {number}@{settings.cluster_nodes[number]}`"
    )


def _calm_garbage_collector() -> None:
    """Freeze the objects made at start: a busy loop makes few cycles and many short-lived
    values.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@asynccontextmanager
async def offline_node(settings: Settings) -> AsyncIterator[Node]:
    """A node without listeners on an unused data directory; stopped on exit.

    Raises `ConfigError`, `DirectoryInUseError`, `FormatError`.
    """
    refuse_other_directory(settings.data, settings.files())
    settings = msgspec.structs.replace(settings, listeners=())
    with restored_unless(settings.data, lambda: False):
        node = _node(settings, asyncio.get_running_loop(), OPEN_SEGMENTS_MAX)
        await node.start()
    try:
        yield node
    finally:
        await node.stop()
