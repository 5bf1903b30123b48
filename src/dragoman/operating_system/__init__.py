"""The operating system: the real versions of the ports of `world.py`, and what a process needs.

platforms      how Linux, macOS and Windows differ
disk           the real disk
clock          time and randomness
descriptors    the limit of open files, and spare descriptors
usage          what this process uses
private_files  secrets, and other files that an operator names
environment    environments of processes
"""

from dragoman.operating_system.clock import SystemClock, system_random
from dragoman.operating_system.descriptors import (
    SpareDescriptors,
    allow_open_files,
    open_files_max,
    open_files_permitted,
)
from dragoman.operating_system.disk import RealDisk, is_directory
from dragoman.operating_system.environment import child_environment
from dragoman.operating_system.private_files import (
    RealPlainFiles,
    RealSecrets,
    create_private,
    replace_private,
)
from dragoman.operating_system.usage import process_usage

__all__ = [
    "RealDisk",
    "RealPlainFiles",
    "RealSecrets",
    "SpareDescriptors",
    "SystemClock",
    "allow_open_files",
    "child_environment",
    "create_private",
    "is_directory",
    "open_files_max",
    "open_files_permitted",
    "process_usage",
    "replace_private",
    "system_random",
]
