"""Leases on segment files, so that retention does not delete them during a scan by Spark.

    pins/NAME/expires               milliseconds since 1970, as text; renewed while the scan lasts
    pins/NAME/expires.PID           the next version of this file, while it is written
    pins/NAME/ID-TOPIC-INDEX/…      hard links to the files of one partition

The planner of a scan creates them. When they have expired, the node's maintenance or the next
planner removes them.
"""

from __future__ import annotations

import logging

from dragoman.world import Disk, read_whole

log = logging.getLogger("dragoman.log")

PINS = "pins"
EXPIRES = "expires"


def sweep_pins(disk: Disk, now_ms: int) -> int:
    """Remove expired leases and return how many there were. A failure is logged."""
    swept = 0
    for name in disk.names(PINS):
        try:
            if _expiry_ms(disk, f"{PINS}/{name}") <= now_ms:
                remove_lease(disk, name)
                swept += 1
        except OSError as error:
            log.warning("lease %s cannot be removed yet: %s", name, error)
    return swept


def remove_lease(disk: Disk, name: str) -> None:
    lease = f"{PINS}/{name}"
    for directory in disk.names(lease):
        if directory == EXPIRES:
            continue
        if directory.startswith(f"{EXPIRES}."):
            # A process that was renewing the lease died, or the disk was full.
            disk.remove(f"{lease}/{directory}")
            continue
        for file in disk.names(f"{lease}/{directory}"):
            disk.remove(f"{lease}/{directory}/{file}")
        disk.remove_directory(f"{lease}/{directory}")
    # Last, so that a lease that was removed in part is found again.
    disk.remove(f"{lease}/{EXPIRES}")
    disk.remove_directory(lease)


def _expiry_ms(disk: Disk, lease: str) -> int:
    """The expiry of a lease; 0 for one that a process which died was creating or removing."""
    try:
        text = read_whole(disk, f"{lease}/{EXPIRES}")
    except (FileNotFoundError, NotADirectoryError):
        return 0
    return int(text) if text.isdigit() else 0
