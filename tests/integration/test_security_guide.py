"""Goal: a node is locked with exactly what the guide to security says, and refuses what it says.

Method: take the blocks out of the guide, run them in a directory of their own, on free ports, and
compare what they print with the page; then act as clients that the page does not have.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer

from dragoman.cli.main import main
from dragoman.client.minibroker import (
    BlockingMinibrokerClient,
    ClientSettings,
    ConnectionLostError,
    RefusedError,
    TlsSettings,
)
from nodes.process import SOURCE, ServedNode

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "security.md").read_text()
PATH = PAGE.partition("## Locking a node down")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PATH, re.MULTILINE | re.DOTALL)


def block(containing: str) -> str:
    (found,) = [text for _, text in BLOCKS if containing in text]
    return found


class Terminal:
    """A shell in the directory of the guide's reader."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        program = directory / "bin" / "dragoman"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dragoman.cli.main "$@"\n')
        program.chmod(0o755)
        python = program.with_name("python3")
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("DRAGOMAN_")}
        paths = os.pathsep.join([str(program.parent), os.environ["PATH"]])
        self._environment = {**inherited, "PATH": paths, "PYTHONPATH": SOURCE}

    def run(self, script: str) -> str:
        """What the script prints, on both outputs."""
        return subprocess.run(
            ["/bin/sh", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.directory,
            env=self._environment,
            timeout=200,
            check=False,
        ).stdout

    def session(self, lines: list[str]) -> str:
        """The commands with what they print, as the page shows them."""
        shown = [f"echo {shlex.quote('$ ' + line)}\n{line}" for line in lines]
        return re.sub(r" +$", "", self.run("\n".join(shown)), flags=re.MULTILINE)


class Locked:
    def __init__(self, terminal: Terminal, node: ServedNode) -> None:
        self.terminal = terminal
        self.node = node
        self.address = node.listeners["kafka"].replace("127.0.0.1", "localhost")

    def follow(self, containing: str) -> tuple[str, str]:
        """Type the commands of a block. Returns what was printed, and what the page shows."""
        page = block(containing)
        here = page.replace("localhost:9092", self.address)
        printed = self.terminal.session(re.findall(r"^\$ (.+)$", here, re.MULTILINE))
        return printed.replace(self.address, "localhost:9092"), page


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    directory = tmp_path_factory.mktemp("guide")
    terminal = Terminal(directory)
    first = block("dragoman serve").replace("\\\n", "")
    *before, serve = first.splitlines()
    terminal.run("\n".join(before))
    program, verb, *arguments = shlex.split(serve)
    assert (program, verb) == ("dragoman", "serve")
    free = [re.sub(r":(9092|8080)$", ":0", each) for each in arguments]
    extra = ("--listen", "minibroker=127.0.0.1:0")
    paths = [re.sub(r"=(certificates/.*)$", rf"={directory}/\1", each) for each in free]
    paths[paths.index("shop-data")] = str(directory / "shop-data")
    with ServedNode(*paths, *extra) as node:
        node.ready()
        yield Locked(terminal, node)
        assert node.stop() == 0, node.log


def test_the_path_of_the_guide_locks_a_node(locked: Locked) -> None:
    printed, page = locked.follow("dragoman acl add admin")
    assert printed == page
    printed, page = locked.follow("dragoman consume orders")
    assert printed == page
    code = block("from confluent_kafka").replace("localhost:9092", locked.address)
    assert locked.terminal.run(f"python3 - <<'END'\n{code}\nEND") == ""
    consume = next(
        line for line in block("dragoman consume orders").splitlines() if "--group" in line
    ).removeprefix("$ ")
    consume = consume.replace("localhost:9092", locked.address)
    again = f"export DRAGOMAN_CA_FILE=certificates/ca.pem; {consume}"
    assert locked.terminal.run(again) == "4 pears\n"
    lines = (locked.terminal.directory / "shop-data" / "audit.log").read_bytes().splitlines()
    found = {(each["kind"], each["result"]) for each in map(msgspec.json.decode, lines)}
    assert {("login", "failed"), ("denial", "denied")} <= found


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_client_without_login_is_refused(locked: Locked, protocol: str) -> None:
    errors: list[str] = []
    settings = {
        "bootstrap.servers": locked.address,
        "security.protocol": protocol,
        "message.timeout.ms": 2_000,
        "log_level": 0,
    }
    if protocol == "SSL":
        settings["ssl.ca.location"] = str(locked.terminal.directory / "certificates" / "ca.pem")
    producer = Producer(settings)
    producer.produce("orders", b"5 plums", on_delivery=lambda error, _: errors.append(error.name()))
    assert producer.flush(60) == 0
    assert errors == ["_MSG_TIMED_OUT"]


def test_settings_change_live_and_certificates_name_users(locked: Locked) -> None:
    """minibroker has no login: its clients show certificates, which were not demanded at first."""
    directory = locked.terminal.directory
    tls = TlsSettings(
        ca=str(directory / "certificates" / "ca.pem"),
        certificate=str(directory / "certificates" / "client.pem"),
        key=str(directory / "certificates" / "client-key.pem"),
    )
    settings = ClientSettings(tls=tls, retry_for_s=2.0)
    address = locked.node.listeners["minibroker"].replace("127.0.0.1", "localhost")

    def publish() -> None:
        with BlockingMinibrokerClient(address, settings) as client:
            client.publish("deliveries", b"6 figs")

    def types(*words: str) -> int:
        return main([*words, "--server", f"unix:{directory}/shop-data"])

    with pytest.raises((ConnectionLostError, RefusedError)):
        publish()
    change = (
        f"ssl.ca.file={tls.ca}",
        "listener.minibroker.ssl.client.auth=required",
        "ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/",
    )
    assert types("config", "set", *change) == 0
    assert types("acl", "add", "client", "write,create", "topic:deliveries") == 0
    publish()
    assert types("config", "unset", "ssl.principal.mapping.rules") == 0
    with pytest.raises(RefusedError):
        publish()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["num.partition=3"], "did you mean 'num.partitions'"),
        (["node.id=3"], "can only be set when the node is started"),
        (["num.partitions=x"], "num.partitions: expected"),
        (["num.partitions=3", "--node", "9"], "there is no node 9"),
    ],
)
def test_settings_that_cannot_change_are_refused(
    locked: Locked, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = locked.terminal.directory
    assert main(["config", "set", *words, "--server", f"unix:{directory}/shop-data"]) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("consume orders --bootstrap {kafka}", "does it demand TLS (--tls) or a login (--user)?"),
        ("topic list --server http://{http}", "it may demand TLS: use https://"),
        ("topic list --server https://{http}", "--ca-file names the certificates to trust"),
        (
            "consume orders --tls -b {kafka}",
            "certificate; --ca-file names the certificates to trust",
        ),
        (
            "topic list --server https://{http} --ca-file certificates/ca.pem",
            "log in with --token-file FILE or --user NAME --password-file FILE",
        ),
    ],
)
def test_refused_command_says_what_to_type(locked: Locked, command: str, text: str) -> None:
    at = locked.node.listeners.items()
    places = {name: each.replace("127.0.0.1", "localhost") for name, each in at}
    assert text in locked.terminal.run(f"dragoman {command.format(**places)}")
