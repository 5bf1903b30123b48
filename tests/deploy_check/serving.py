"""A node of an installed `dragoman`, used the way a new user would."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy_check.command import ENVIRONMENT, CheckError, output_of

_READY_SECONDS = 120


@contextmanager
def node(
    command: Sequence[str | Path], environment: Mapping[str, str] = ENVIRONMENT
) -> Iterator[dict[str, str]]:
    """Run `dragoman serve`; yields the address of each listener. The node has to stop cleanly."""
    process = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(environment),
    )
    try:
        yield _addresses(process)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=_READY_SECONDS)
        if process.returncode:
            raise CheckError(f"the node ended with {process.returncode}: {said[-2000:]}")
    finally:
        process.kill()
        process.communicate()


def _addresses(process: subprocess.Popen[str]) -> dict[str, str]:
    assert process.stdout is not None
    found: dict[str, str] = {}
    for line in process.stdout:
        if line == "ready\n":
            return found
        name, _, rest = line.partition(" on ")
        found[name] = rest.partition(",")[0].strip()
    _, said = process.communicate()
    raise CheckError(f"the node was not ready: {said[-2000:]}")


def use(dragoman: Path, data: Path) -> None:
    """Serve, create a topic, write a record and read it back."""
    serve = (dragoman, "serve", "--data", data)
    listen = ("--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0")
    with node((*serve, *listen)) as addresses:
        kafka, http = addresses["kafka"], f"http://{addresses['http']}"
        output_of((dragoman, "topic", "create", "fruit", "--server", http))
        to = ("--bootstrap", kafka)
        output_of((dragoman, "produce", "fruit", *to), standard_input="3 apples\n")
        read = output_of((dragoman, "consume", "fruit", *to, "--group", "shop", "--max", "1"))
    if read != "3 apples\n":
        raise CheckError(f"a record was read as {read!r}")
