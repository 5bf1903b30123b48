"""What the operating system knows about a process: CPU time, memory, children."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

#: Kind of the CPU clock of a process in a Linux clock id: all threads, as the scheduler counts.
_CLOCK_SCHEDULER = 2
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of all its descendants, the ended ones included.

    A running process is asked through its CPU clock, because /proc/PID/stat counts in steps of
    10 ms; its ended children are in /proc/PID/stat only.
    """
    own = time.clock_gettime((~pid << 3) | _CLOCK_SCHEDULER)
    return own + _ended_children(pid) + sum(cpu_seconds(child) for child in children(pid))


def _ended_children(pid: int) -> float:
    # The command's name, in brackets, may hold blanks: fields are counted from behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / _TICKS_PER_S


def children(pid: int) -> list[int]:
    """Processes that this one started and that still run."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in text.split()]


def memory_kb(pid: int, field: str = "VmRSS") -> int:
    """`VmRSS` now or `VmHWM` at its highest, of this process alone."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise ValueError(f"/proc/{pid}/status has no {field}")


def reset_memory_peak(pid: int) -> None:
    """Let `VmHWM` start again from what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def raise_open_files() -> int:
    """As many descriptors as the system lets us; what is started from here inherits it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Neighbours:
    """CPU that processes other than ours took meanwhile: says how far to trust a figure."""

    def __init__(self) -> None:
        self._wall = time.monotonic()
        self._busy = _busy_seconds()
        self._own = _own_seconds()

    def cpu_share(self) -> float:
        """Share of the whole machine since the start. Call when all our children have ended."""
        busy = _busy_seconds() - self._busy
        own = _own_seconds() - self._own
        available = (time.monotonic() - self._wall) * (os.cpu_count() or 1)
        return max(0.0, (busy - own) / available)


def _busy_seconds() -> float:
    fields = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]]
    user, nice, system, _idle, _iowait, irq, softirq = fields
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


def _own_seconds() -> float:
    whole = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        whole += usage.ru_utime + usage.ru_stime
    return whole
