"""Leases on segment files, so that a scan from outside does not lose them to retention.

    pins/NAME/expires               milliseconds since 1970, as text; moved on while the scan lasts
    pins/NAME/expires.PID           the next of these, while it is written
    pins/NAME/ID-TOPIC-INDEX/…      hard links to the files of one partition

A planner of scans makes them. They are removed when their time is up, by the node's maintenance or
by the next planner, whoever comes first.
"""

from __future__ import annotations

import logging

from dragoman.world import Disk, read_whole

log = logging.getLogger("dragoman.log")

PINS = "pins"
EXPIRES = "expires"


def sweep_pins(disk: Disk, now_ms: int) -> int:
    """Remove leases whose time is up; how many there were. One that cannot go holds up no other."""
    swept = 0
    for name in disk.names(PINS):
        try:
            if _expiry_ms(disk, f"{PINS}/{name}") <= now_ms:
                remove_lease(disk, name)
                swept += 1
        except OSError as error:
            log.warning("lease %s is left for now: %s", name, error)
    return swept


def remove_lease(disk: Disk, name: str) -> None:
    lease = f"{PINS}/{name}"
    for directory in disk.names(lease):
        if directory == EXPIRES:
            continue
        if directory.startswith(f"{EXPIRES}."):
            # Whoever was renewing it died, or found no room.
            disk.remove(f"{lease}/{directory}")
            continue
        for file in disk.names(f"{lease}/{directory}"):
            disk.remove(f"{lease}/{directory}/{file}")
        disk.remove_directory(f"{lease}/{directory}")
    # Last, so that a lease that was removed in part is found again.
    disk.remove(f"{lease}/{EXPIRES}")
    disk.remove_directory(lease)


def _expiry_ms(disk: Disk, lease: str) -> int:
    """Zero when the lease says none: it was being made, or removed, by a process that died."""
    try:
        text = read_whole(disk, f"{lease}/{EXPIRES}")
    except (FileNotFoundError, NotADirectoryError):
        return 0
    return int(text) if text.isdigit() else 0
