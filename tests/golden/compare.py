"""Compares what two versions of the software answer to the same requests.

    python -m golden.compare --before SRC_DIR --after SRC_DIR [--save FILE] [--show N]

Each version is run by `driver.py` in processes of its own, with that source. What it answers to the
requests of `requests.json`, over HTTP and on the command line is recorded and compared; then each
opens a data directory that the other has written. `--before` may also be a recording that `--save`
has kept, for versions that are compared often; directories are left out then.

Exit status 1: there are differences.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_SECONDS_MAX = 600.0
#: What differs between two runs of one version, and why: answers whose names match the first
#: pattern are compared without what matches the second.
UNSTEADY: tuple[tuple[str, str, str], ...] = (
    (r"(http|command) .*cluster", r'"uptime_ms\W+\d+', "the monotonic clock is the real one"),
    (r"command cluster status", r"uptime +[\d.]+ s", "the monotonic clock is the real one"),
    (r"http GET /(api/v1/cluster|metrics)$", r"content-length: \d+", "how long numbers are"),
    (
        r"http GET /metrics",
        r"dragoman_uptime_seconds [\d.]+",
        "the monotonic clock is the real one",
    ),
    (r"http GET /metrics", r"dragoman_process_\w+ [\d.e+]+", "the process: memory, time, files"),
    (r"http GET /metrics", r"dragoman_\w+_seconds_(sum|bucket)[^\\]*", "how long work took"),
    (r"(command )?log verify", r"bytes_read\W+\d+", "which records share a batch is of the moment"),
    (r"command rocketmq broker-status", r"Total : \d+ B, Free : \d+ B", "the machine's disk"),
    (r"command rocketmq", r"message_id\W+\w+", "it contains the port, which the system chose"),
)

Recording = dict[str, Any]


class DriverError(Exception):
    """A version could not even be asked."""


def drive(source: Path, *arguments: str) -> Recording:
    """Run the driver with a version's source, and read what it wrote."""
    with tempfile.TemporaryDirectory(prefix="golden-") as directory:
        out = Path(directory, "out.json")
        environment = {
            **os.environ,
            "PYTHONPATH": str(source),
            "PYTHONHASHSEED": "0",
            "PYTHONOPTIMIZE": "",
            "HOME": directory,
            "XDG_STATE_HOME": directory,
        }
        command = [sys.executable, str(HERE / "driver.py"), *arguments, str(out)]
        ran = subprocess.run(
            command, env=environment, cwd=directory, timeout=_SECONDS_MAX, check=False
        )
        if ran.returncode != 0:
            raise DriverError(f"the driver ended with status {ran.returncode}")
        found: Recording = json.loads(out.read_text())
    return found


def record(source: Path) -> Recording:
    with tempfile.TemporaryDirectory(prefix="golden-") as directory:
        return drive(source, "record", directory)


def record_directories(writer: Path, reader: Path) -> Recording:
    """What `reader` finds in a directory that `writer` has made."""
    with tempfile.TemporaryDirectory(prefix="golden-") as directory:
        data = f"{directory}/data"
        try:
            drive(writer, "write", data)
            return drive(reader, "read", data)
        except DriverError as error:
            return {"driver": str(error)}


def steady(name: str, answer: Any) -> Any:
    """Without what differs from run to run."""
    for names, pattern, _ in UNSTEADY:
        if re.match(names, name):
            answer = _without(re.compile(pattern), answer)
    return answer


def _without(pattern: re.Pattern[str], answer: Any) -> Any:
    if isinstance(answer, dict):
        return {key: _without(pattern, value) for key, value in answer.items()}
    return pattern.sub("", answer) if isinstance(answer, str) else answer


def differences(before: Recording, after: Recording) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            found[name] = "only " + ("before" if name in before else "after")
        elif steady(name, before[name]) != steady(name, after[name]):
            found[name] = _shown(steady(name, before[name]), steady(name, after[name]))
    return found


def _shown(before: Any, after: Any) -> str:
    pair = (_lines(before), _lines(after))
    return "\n".join(difflib.unified_diff(*pair, "before", "after", lineterm="", n=1))


def _lines(answer: Any) -> list[str]:
    if isinstance(answer, dict) and "reply" in answer:
        # Text in a binary reply is what says most.
        text = bytes.fromhex(answer["reply"]).decode("ascii", "replace")
        return [f"closed {answer.get('closed', False)}", answer["reply"], repr(text)]
    if isinstance(answer, dict):
        return [line for key in sorted(answer) for line in f"{key}: {answer[key]}".splitlines()]
    return str(answer).splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(prog="golden.compare", description=(__doc__ or "")[:65])
    parser.add_argument("--before", type=Path, required=True, help="source folder or recording")
    parser.add_argument("--after", type=Path, required=True, help="source folder")
    parser.add_argument("--save", type=Path, help="keep the recording of --before in this file")
    parser.add_argument("--show", type=int, default=20, help="differences that are shown whole")
    given = parser.parse_args()
    has_source = given.before.is_dir()
    before = record(given.before.resolve()) if has_source else json.loads(given.before.read_text())
    if given.save is not None:
        given.save.write_text(json.dumps(before, indent=1, sort_keys=True))
    after = record(given.after.resolve())
    found = differences(before, after)
    compared = len(before.keys() | after.keys())
    if has_source:
        old, new = given.before.resolve(), given.after.resolve()
        usual = record_directories(old, old)
        compared += 3 * len(usual)
        for writer, reader, label in (
            (old, new, "old by new"),
            (new, old, "new by old"),
            (new, new, "new by new"),
        ):
            other = record_directories(writer, reader)
            for name, text in differences(usual, other).items():
                found[f"directory, {label}: {name}"] = text
    for name, text in list(found.items())[: given.show]:
        print(f"---- {name}\n{text}")
    for name in list(found)[given.show :]:
        print(f"---- {name}")
    print(f"{len(found)} differences in {compared} answers")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
