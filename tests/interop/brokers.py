"""Brokers that run as processes: a node of ours with ports that are known beforehand, and Apache
RocketMQ itself. Both are used like an `EphemeralBroker`.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Self

from client import SECONDS_MAX

SOURCES = Path(__file__).parent / "rocketmq" / "broker"
BUILD = Path(__file__).parents[2] / "build" / "interop" / "rocketmq-broker"
#: Old clients connect to a port that is this many below the advertised one.
VIP_DISTANCE = 2


def free_port() -> int:
    """One whose neighbours, which belong to it, are free, too."""
    while True:
        with closing(socket.create_server(("127.0.0.1", 0))) as found:
            port: int = found.getsockname()[1]
            with suppress(OSError):
                for distance in (-VIP_DISTANCE, 1):
                    socket.create_server(("127.0.0.1", port + distance)).close()
                return port


class ProcessBroker:
    """Begins when it is entered; keeps its directory and ports over `restart`."""

    listeners: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="dragoman-interop-")
        self.directory = Path(self._directory.name)
        self.ports = {listener: free_port() for listener in self.listeners}
        self._processes: list[subprocess.Popen[bytes]] = []

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    @property
    def bootstrap_servers(self) -> str:
        return self.address("kafka")

    def start(self) -> None:
        raise NotImplementedError

    def run(self, command: list[str], listener: str) -> None:
        """Start a process, and wait for it to listen."""
        log = self.directory / f"{listener}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=self.directory)
        self._processes.append(process)
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.ports[listener])).close()
                return
            is_alive = process.poll() is None and time.monotonic() < deadline
            assert is_alive, log.read_text()[-2000:]
            time.sleep(0.1)

    def stop(self) -> None:
        while self._processes:
            process = self._processes.pop()
            process.terminate()
            try:
                process.wait(SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._directory.cleanup()


class ServedBroker(ProcessBroker):
    """`dragoman serve`: only a port that is asked for has one beside it for old clients."""

    listeners = ("rocketmq", "rocketmq-broker", "kafka")

    def start(self) -> None:
        listen = [
            word
            for listener in self.listeners
            for word in ("--listen", f"{listener}={self.address(listener)}")
        ]
        command = [sys.executable, "-m", "dragoman.cli.main", "serve"]
        self.run([*command, "--data", str(self.directory / "data"), *listen], "rocketmq-broker")


class OriginalBroker(ProcessBroker):
    """RocketMQ's name server and broker, with little memory and small files."""

    listeners = ("rocketmq", "rocketmq-broker")

    def start(self) -> None:
        names, broker = self.directory / "names.properties", self.directory / "broker.properties"
        port, store = self.ports["rocketmq"], self.directory / "store"
        names.write_text(f"listenPort={port}\nkvConfigPath={self.directory / 'kv.json'}\n")
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": self.ports["rocketmq-broker"],
            "namesrvAddr": self.address("rocketmq"),
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "mappedFileSizeCommitLog": 16 << 20,
            "mappedFileSizeConsumeQueue": 600_000,
            "enablePropertyFilter": "true",
            "transactionCheckInterval": 2000,
        }
        broker.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.run(self._command("namesrv.NamesrvStartup", names), "rocketmq")
        self.run(self._command("broker.BrokerStartup", broker), "rocketmq-broker")

    def _command(self, name: str, settings: Path) -> list[str]:
        options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
        homes = (f"-Duser.home={self.directory}", f"-Drocketmq.home.dir={self.directory}")
        program = ("-cp", str(BUILD / "jars" / "*"), f"org.apache.rocketmq.{name}")
        return ["java", *options, *homes, *program, "-c", str(settings)]


def set_up_original() -> str:
    """Fetch RocketMQ, once. Why it cannot be run, or nothing."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    pom, stamp = SOURCES / "pom.xml", BUILD / "pom.xml"
    if not stamp.exists() or stamp.read_bytes() != pom.read_bytes():
        shutil.rmtree(BUILD, ignore_errors=True)
        BUILD.mkdir(parents=True)
        copy = ("dependency:copy-dependencies", f"-DoutputDirectory={BUILD / 'jars'}")
        subprocess.run(["mvn", "-q", "-B", "-f", pom, *copy], check=True, timeout=600)
        shutil.copy(pom, stamp)
    return ""
