"""What a process uses: processor time, memory and descriptors."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from dragoman.operating_system import platforms
from dragoman.operating_system.descriptors import open_files_max


def process_usage() -> dict[str, float]:
    """What this process uses, under the names that Prometheus' clients give it. What the system
    does not report is left out.
    """
    if platforms.IS_WINDOWS:
        return {"cpu_seconds_total": time.process_time()}
    import resource

    spent = resource.getrusage(resource.RUSAGE_SELF)
    usage: dict[str, float] = {
        "cpu_seconds_total": spent.ru_utime + spent.ru_stime,
        "max_fds": open_files_max(),
    }
    with suppress(OSError):
        # The descriptor of the directory itself is among them.
        usage["open_fds"] = len(os.listdir("/dev/fd")) - 1
    with suppress(OSError, ValueError, IndexError):
        usage |= _linux_usage()
    return usage


def _linux_usage() -> dict[str, float]:
    """From `/proc`, as of proc_pid_stat(5). Raises `OSError` where there is none."""
    with open("/proc/self/stat", "rb") as file:
        # The name of the program comes before, in parentheses, and may hold anything.
        fields = file.read().rpartition(b")")[2].split()
    with open("/proc/stat", "rb") as file:
        booted = next(line for line in file if line.startswith(b"btime "))
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    return {
        "start_time_seconds": int(booted.split()[1]) + int(fields[19]) / ticks,
        "virtual_memory_bytes": int(fields[20]),
        "resident_memory_bytes": int(fields[21]) * page,
    }
