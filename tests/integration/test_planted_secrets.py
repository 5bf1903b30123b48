"""Goal: a secret that is given to a node shows up nowhere: no output, log, file, process or etcd.

Method: marked secrets go into every place of a real node that takes one, good and bad requests are
made, the node is killed and restarted and its key rotated. Then everything that the node, the
command line and the API have said is searched, and so is every byte that they have stored,
including the journal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from dragoman.log.node import FEATURE_LEVEL
from dragoman.security.key_file import parse_keys
from nodes.etcd import RealEtcd
from nodes.process import SOURCE, WAIT_S, ServedNode

#: With characters that are escaped in URLs, JSON and addresses.
IN_CLEAR = "planted secret/1'\"%é"
IN_FILE = "planted secret/2'\\%é"
IN_ENVIRONMENT = "planted-secret-3"
TABLES = ["orders"]


def forms(secret: str) -> list[bytes]:
    """The ways in which a secret may be written."""
    escaped = json.dumps(secret)[1:-1]
    quoted = secret.replace("\\", "\\\\").replace("'", "\\'")
    texts = {secret, quote(secret), quote(secret, safe=""), escaped, quoted, repr(secret)[1:-1]}
    return [text.encode() for text in texts] + [
        secret.encode("utf-16-le"),
        secret.encode().hex().encode(),
    ]


SECRETS = {secret: forms(secret) for secret in (IN_CLEAR, IN_FILE, IN_ENVIRONMENT)}


class Place:
    """A node with a cluster key, and all that it has said."""

    def __init__(self, root: Path, etcd: RealEtcd | None) -> None:
        self.root, self.etcd = root, etcd
        self.data = root / "data"
        self.key = root / "cluster.key"
        self.password = root / "password"
        self.password.write_text(IN_FILE + "\n")
        self.said: list[str] = []
        self.new_key()
        self.node = self.start()

    def start(self) -> ServedNode:
        arguments = ["--data", str(self.data), "--listen", "kafka=127.0.0.1:0"]
        arguments += ["--listen", "http=127.0.0.1:0", "--set", f"cluster.key.file={self.key}"]
        arguments += ["--set", f"audit.log.file={self.data}/audit.log", "--set", "log.level=debug"]
        if self.etcd is not None:
            address = f"http://127.0.0.1:{self.etcd.port}"
            arguments += ["--listen", "peer=127.0.0.1:0", "--etcd", address]
            arguments += ["--set", "metadata.etcd.allow.bad.version=true"]
        self.node = ServedNode(*arguments, environment={"PLANTED": IN_ENVIRONMENT}).ready()
        return self.node

    def end(self) -> None:
        self.node.kill()
        self.said += [*self.node.output, *self.node.log]

    # ---- what is asked of it

    def ask(self, method: str, path: str, body: object = None) -> int:
        data = None if body is None else json.dumps(body).encode()
        address = self.node.listeners["http"]
        request = Request(f"http://{address}{path}", data, method=method)
        if data is not None:
            request.add_header("content-type", "application/json")
        try:
            with urlopen(request, timeout=WAIT_S) as answer:
                status, text = answer.status, answer.read()
        except HTTPError as error:
            status, text = error.code, error.read()
        self.said.append(text.decode())
        return int(status)

    def command(self, capture: str, command: str) -> int:
        wanted = {"command": command, "principal": "User:ANONYMOUS"}
        return self.ask("POST", f"/api/v1/captures/{capture}/commands", wanted)

    def run(self, *arguments: str, dsn: str = "", remote: bool = True) -> int:
        where = ("--server", f"http://{self.node.listeners['http']}") if remote else ()
        done = subprocess.run(
            [sys.executable, "-m", "dragoman.cli.main", *arguments, *where],
            env={**os.environ, "PYTHONPATH": SOURCE, "DRAGOMAN_CDC_DSN": dsn},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        self.said += [done.stdout, done.stderr]
        return done.returncode

    def new_key(self) -> str:
        self.run("security", "key", "new", str(self.key), remote=False)
        return next(iter(parse_keys(self.key.read_bytes())))

    def wait_for(self, words: str, path: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:
            assert self.ask("GET", path) == 200
            if words in self.said[-1]:
                return
            assert time.monotonic() < deadline, self.said[-1]
            time.sleep(0.05)

    def wait_for_level(self) -> None:
        """Until the cluster uses the features of this release."""
        deadline = time.monotonic() + WAIT_S
        while True:
            assert self.ask("GET", "/api/v1/cluster") == 200
            if json.loads(self.said[-1])["feature_level"] >= FEATURE_LEVEL:
                return
            assert time.monotonic() < deadline, self.said[-1]
            time.sleep(0.05)

    # ---- where secrets may be

    def look_at_processes(self) -> None:
        """Arguments of the node, arguments and environment of all that it has started."""
        node = self.node.process.pid
        self.said.append(_read(f"/proc/{node}/cmdline"))
        found = _descendants(node)
        assert found
        for each in found:
            self.said += [_read(f"/proc/{each}/cmdline"), _read(f"/proc/{each}/environ")]

    def leaks(self) -> list[str]:
        stored = [path for path in self.root.rglob("*") if path.is_file() and path != self.password]
        found = [
            f"{secret!r} in {path}"
            for path in stored
            # Journals and etcd end with many zeros.
            for data in (path.read_bytes().rstrip(b"\0"),)
            for secret, words in SECRETS.items()
            if any(word in data for word in words)
        ]
        said = "\0".join(self.said).encode(errors="surrogateescape")
        for words in SECRETS.values():
            found += [f"{word!r} was said" for word in words if word in said]
        return found


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="surrogateescape")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _descendants(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _read(f"/proc/{name}/stat").rpartition(")")[2].split()
            if fields and int(fields[1]) == parent:
                found += [int(name), *_descendants(int(name))]
    return found


@pytest.fixture(params=["raft", "etcd"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    etcd = None
    if request.param == "etcd":
        (tmp_path / "etcd").mkdir()
        etcd = RealEtcd(tmp_path / "etcd")
    try:
        made = Place(tmp_path, etcd)
        yield made
        made.node.kill()
    finally:
        if etcd is not None:
            etcd.kill()


def address(password: str) -> str:
    quoted = password.replace("\\", "\\\\").replace("'", "\\'")
    return f"host=127.0.0.1 port=1 user=app dbname=shop password='{quoted}'"


def definitions(place: Place) -> dict[str, str]:
    return {
        "clear": address(IN_CLEAR),
        "uri": f"postgresql://app:{quote(IN_CLEAR, safe='')}@127.0.0.1:1/shop",
        "file": address(f"file:{place.password}"),
        "env": address("env:PLANTED"),
    }


def use(place: Place) -> None:
    """Good and bad requests that have a secret in them."""
    place.wait_for_level()
    for name, dsn in definitions(place).items():
        definition = {"name": name, "dsn": dsn, "tables": TABLES, "topics": {"orders": name}}
        assert place.ask("POST", "/api/v1/captures", definition) == 201, place.said[-1]
        place.ask("POST", "/api/v1/captures", definition)
        place.ask("POST", "/api/v1/captures", {**definition, "name": "A bad name!"})
        place.ask("POST", "/api/v1/captures", {**definition, "unknown": IN_CLEAR})
        place.ask("POST", "/api/v1/captures", {**definition, "tables": 1})
        place.ask("POST", "/api/v1/captures", {**definition, "dsn": f"{dsn} hostaddr=1.2.3.4"})
        place.ask("POST", "/api/v1/captures", {**definition, "dsn": f"host= {dsn[4:]}"})
        place.ask("POST", "/api/v1/capture-checks", {"definition": definition})
        place.ask("POST", "/api/v1/capture-checks", {"name": name})
        for command in ("pause", "resume", "rewind", "run_as"):
            place.command(name, command)
        place.wait_for("waiting", f"/api/v1/captures/{name}")
    with ThreadPoolExecutor() as pool:
        # A node waits for the database of each, which never answers.
        asked = [pool.submit(place.command, name, "snapshot") for name in definitions(place)]
        use_commands(place)
    assert {each.result() for each in asked} == {503}


def use_commands(place: Place) -> None:
    dsn = address(IN_CLEAR)
    place.run("cdc", "add", "other", "--tables", "t", "--no-check", "--detach", dsn=dsn)
    place.run("cdc", "add", "bad name", "--tables", "t", dsn=dsn)
    place.run("cdc", "doctor", "--tables", "t", dsn=dsn)
    place.run("cdc", "doctor", "--tables", "t", "--local", dsn=definitions(place)["file"])
    place.look_at_processes()
    for path in ("captures", "cluster", "security/key", "pipelines"):
        assert place.ask("GET", f"/api/v1/{path}") == 200
    place.ask("GET", "/metrics")
    place.run("cdc", "list", "--output", "json")
    place.run("cdc", "status", "--output", "json")
    place.run("security", "key", "status")


@pytest.mark.timeout(300)
def test_a_planted_secret_is_found_nowhere(place: Place) -> None:
    use(place)
    place.end()
    place.start()
    place.wait_for("waiting", "/api/v1/captures/clear")
    new = place.new_key()
    assert place.run("security", "key", "rotate", "--output", "json") == 0
    status = json.loads(place.said[-2])
    assert list(status["sealed"]) == [new]
    place.wait_for("waiting", "/api/v1/captures/clear")
    place.look_at_processes()
    place.ask("DELETE", "/api/v1/captures/file?keep_slot=true")
    assert place.node.stop() == 0
    place.said += [*place.node.output, *place.node.log]
    assert place.leaks() == []
    # The search itself finds what is there.
    (place.data / "planted").write_text(IN_CLEAR)
    place.said.append(IN_FILE)
    assert len(place.leaks()) >= 2
