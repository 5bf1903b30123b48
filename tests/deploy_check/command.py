"""Programs that the checks run, and what their failure means."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "deploy-check"
#: Nothing of the caller's may lead Python to this checkout, or a command to another broker.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PYTHON", "DRAGOMAN_", "COV_", "VIRTUAL_ENV"))
}


class CheckError(Exception):
    """What is checked is wrong."""


class NotRun(Exception):
    """This machine lacks what the check needs."""


def output_of(
    command: Sequence[str | Path],
    *,
    standard_input: str | None = None,
    directory: Path = ROOT,
    environment: Mapping[str, str] = ENVIRONMENT,
    timeout: float = 1800,
) -> str:
    """What a command prints. Raises `CheckError` with all of it when the command fails."""
    done = subprocess.run(
        [str(word) for word in command],
        input=standard_input,
        stdin=subprocess.DEVNULL if standard_input is None else None,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-4000:]
        words = " ".join(Path(command[0]).name if i == 0 else str(w) for i, w in enumerate(command))
        raise CheckError(f"`{words}` ended with {done.returncode}:\n{said}")
    return done.stdout
