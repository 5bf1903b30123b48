"""Compiles the one C file when a C compiler is there; without one the wheel is the same, less that.

The library is loaded with `ctypes` and needs nothing of Python, so one wheel serves every version
of Python on a platform. `CC` names the compiler; an editable install has the library in the tree.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src", "dragoman", "spark", "batches")
SOURCE, LIBRARY = "records.c", "_records.so"
FLAGS = ("-std=c11", "-O3", "-Wall", "-Wextra", "-fPIC", "-shared")


def _platform_tag() -> str:
    name = sysconfig.get_platform()
    if name.endswith("universal2"):
        # The compiler builds for one of the two processors of this interpreter.
        name = f"macosx-11.0-{platform.machine()}"
    return name.replace("-", "_").replace(".", "_")


class CompileRecords(BuildHookInterface[Any]):
    _made: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        folder = Path(self.root, FOLDER)
        if version == "editable":
            self._compile(folder / SOURCE, folder / LIBRARY)
            return
        # Kept until the wheel is written, and with the hook.
        self._made = tempfile.TemporaryDirectory(prefix="dragoman-build-")
        made = Path(self._made.name, LIBRARY)
        if self._compile(folder / SOURCE, made):
            build_data["force_include"][str(made)] = Path("dragoman/spark/batches", LIBRARY)
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform_tag()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._made is not None:
            self._made.cleanup()

    def _compile(self, source: Path, library: Path) -> bool:
        identity = f"-DSOURCE_ID={zlib.crc32(source.read_bytes())}u"
        compiler = shlex.split(os.environ.get("CC", "cc"))
        command = [*compiler, *FLAGS, identity, "-o", str(library), str(source)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"{SOURCE} is not compiled, numpy does its work: {error}")
            return False
        return True
