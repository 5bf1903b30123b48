"""Small scripts in the user's cache that start a program in a way that Spark cannot be told."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path


def launcher(kind: str, program: Path, text: str, environment: Mapping[str, str]) -> Path:
    """A script that starts a program: `bin/NAME` in a folder of its own.

    Two environments on one machine may bring the same program in different places.
    """
    fingerprint = hashlib.sha256(str(program).encode()).hexdigest()[:12]
    script = _cache(environment) / f"{kind}-{fingerprint}" / "bin" / kind
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Aside and renamed, since another session may be starting it at this moment.
        beside = script.with_name(f"{kind}.{os.getpid()}")
        beside.write_text(text)
        beside.chmod(0o755)
        beside.replace(script)
    return script


def _cache(environment: Mapping[str, str]) -> Path:
    named = environment.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "dragoman"
