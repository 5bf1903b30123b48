"""What a node depends on and the machine has: descriptors, room on the disk, free ports."""

from __future__ import annotations

import errno
import os
import socket

from dragoman.cli.diagnosis.finding import Finding, ok, problem, warning
from dragoman.config.listeners import Listener
from dragoman.limits import (
    DISK_WARNING_BYTES,
    DOCTOR_DESCRIPTORS_MIN,
    JOURNAL_FILE_BYTES,
    SHARE_OF_FREE_FILES_MIN,
)
from dragoman.operating_system import open_files_permitted


def descriptors() -> Finding:
    """The limit under which a node that is started from here would run; it raises the soft one."""
    most = open_files_permitted()
    if most is None:
        return ok("descriptors", "no limit of open files")
    said = f"the limit of open files is {most}"
    if most >= DOCTOR_DESCRIPTORS_MIN:
        return ok("descriptors", said)
    remedy = "LimitNOFILE=65536 in the systemd unit, or `ulimit -n 65536` as root"
    return warning("descriptors", f"{said}: each client needs one", remedy)


def room(directory: str) -> Finding:
    found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize
    said = f"{free:,} bytes are free"
    remedy = "free room on the volume, or shorten retention: `log.retention.ms`, `retention.bytes`"
    if free < 2 * JOURNAL_FILE_BYTES:
        return problem(
            "disk", f"{said}: the node cannot start on less than two journal files", remedy
        )
    if found.f_files and found.f_favail < found.f_files * SHARE_OF_FREE_FILES_MIN:
        said = f"{found.f_favail:,} of {found.f_files:,} files can still be created"
        return warning("disk", said, "remove files from the volume, or use another one")
    if free < DISK_WARNING_BYTES:
        return warning("disk", said, remedy)
    return ok("disk", said)


def port(listener: Listener) -> Finding:
    """Whether a listener's address can be bound, as a node would bind it."""
    address = listener.bind
    check, said = "ports", f"{listener.name} on {address}"
    if not address.port:
        return ok(check, f"{said}: a free port is chosen")
    try:
        _bind(address.host, address.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            what = f"{said}: another process uses the port"
            remedy = (
                f"`ss -ltnp 'sport = :{address.port}'` names it; stop it, or give "
                f"--listen {listener.name}=HOST:PORT"
            )
        else:
            what = f"{said}: {error.strerror or error}"
            remedy = f"give --listen {listener.name}=HOST:PORT with an address of this machine"
        return problem(check, what, remedy)
    return ok(check, f"{said} is free")


def _bind(host: str, number: int) -> None:
    found = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
