"""Faults on real nodes raise their alerts, and the runbook's remedy ends them.

A real Prometheus scrapes three nodes each second. It is asked for the expression of an alert, which
holds before the time `for` has passed: first for nothing, then for the faulty node. Alerts without
a fault here are named.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import yaml

from demo.postgres import LocalPostgres
from deploy_check import tools
from deploy_check.command import BUILD, ENVIRONMENT, ROOT, CheckError, output_of
from dragoman.certificates import authority_in, write_pair
from nodes import full_disk
from nodes.cluster import ServedCluster, free_ports
from nodes.process import ServedNode

_RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
_HOME = BUILD / "faults"
_WAIT_S = 90
#: Numbers of an expression, with those to take in their place.
_SAME: Mapping[str, str] = {}
_DRAGOMAN = (sys.executable, "-m", "dragoman.cli.main")


class Prometheus:
    """Scrapes each second, and answers expressions."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/query"
        self._expressions = {
            rule["alert"]: rule["expr"]
            for group in yaml.safe_load(_RULES.read_text())["groups"]
            for rule in group["rules"]
        }
        self.untried = set(self._expressions)
        self.targets: tuple[str, ...] = ()
        self.configuration = _HOME / "prometheus.yml"
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, *targets: str) -> None:
        self.targets = targets
        jobs = [{"job_name": "dragoman", "static_configs": [{"targets": targets}]}]
        every = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        self.configuration.write_text(json.dumps({"global": every, "scrape_configs": jobs}))

    def scrape(self, *targets: str) -> None:
        """Other nodes from now on."""
        assert self.process is not None
        self.write(*targets)
        self.process.send_signal(signal.SIGHUP)
        self.wait_for_targets()

    def wait_for_targets(self) -> None:
        def answers() -> bool:
            try:
                return len(self.query("up == 1")) == len(self.targets)
            except OSError:
                return False

        _wait(answers, "Prometheus does not scrape the nodes")

    def query(self, expression: str) -> list[dict[str, str]]:
        """Labels of the series for which an expression holds."""
        where = f"{self._url}?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(where, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        return [dict(each["metric"]) for each in found]

    def _expression(self, alert: str, numbers: Mapping[str, str]) -> str:
        found = self._expressions[alert]
        for old, new in numbers.items():
            found = found.replace(old, new)
        return found

    def quiet(self, alert: str, numbers: Mapping[str, str] = _SAME) -> None:
        expression = self._expression(alert, numbers)
        _wait(lambda: not self.query(expression), f"{alert} does not end")

    def fires(self, alert: str, numbers: Mapping[str, str] = _SAME, **labels: str) -> None:
        expression = self._expression(alert, numbers)

        def does() -> bool:
            found = self.query(expression)
            if any(not labels.items() <= each.items() for each in found):
                raise CheckError(f"{alert} is about {found} and not about {labels}")
            return bool(found)

        _wait(does, f"{alert} does not fire")
        self.untried.discard(alert)
        print(f"  {alert}: raised by its fault", flush=True)


def _wait(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise CheckError(complaint)
        time.sleep(0.5)


@contextmanager
def _prometheus(*targets: str) -> Iterator[Prometheus]:
    port = next(free_ports())
    found = Prometheus(port)
    found.write(*targets)
    with (_HOME / "prometheus.log").open("w") as log:
        process = found.process = subprocess.Popen(
            (
                tools.promtool().with_name("prometheus"),
                f"--config.file={found.configuration}",
                f"--storage.tsdb.path={_HOME / 'series'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ),
            stdout=log,
            stderr=subprocess.STDOUT,
            env=ENVIRONMENT,
        )
        try:
            found.wait_for_targets()
            yield found
        finally:
            process.terminate()
            process.wait(timeout=60)


# ---- faults


def _dead_node(cluster: ServedCluster, prometheus: Prometheus) -> None:
    prometheus.quiet("DragomanNodeDown")
    cluster.nodes[3].kill()
    prometheus.fires("DragomanNodeDown", instance=cluster.address(3, "http"))
    cluster.start(3)
    prometheus.quiet("DragomanNodeDown")


def _full_disk(cluster: ServedCluster, prometheus: Prometheus) -> None:
    if full_disk.reason_against():
        return
    directory, port = _HOME / "small", next(free_ports())
    options = ("--data", str(directory), "--listen", f"http=127.0.0.1:{port}")
    kafka = ("--listen", "kafka=127.0.0.1:0")
    launcher = full_disk.launcher(directory, 96)
    with ServedNode(*options, *kafka, launcher=launcher).ready() as node:
        instance = f"127.0.0.1:{port}"
        prometheus.scrape(*prometheus.targets, instance)
        prometheus.quiet("DragomanNodeNotReady")
        disk = full_disk.SmallDisk(node, directory)
        disk.fill()
        # The node finds out with its next write.
        create = ("topic", "create", "full", "--server", f"http://{instance}")
        subprocess.run((*_DRAGOMAN, *create), capture_output=True, env=ENVIRONMENT, timeout=60)
        prometheus.fires("DragomanNodeNotReady", instance=instance)
        disk.empty()
        prometheus.quiet("DragomanNodeNotReady")
        prometheus.scrape(*prometheus.targets[:-1])


def _restarts(cluster: ServedCluster, prometheus: Prometheus) -> None:
    prometheus.quiet("DragomanNodeRestarts")
    instance = cluster.address(3, "http")
    uptime = f'dragoman_uptime_seconds{{instance="{instance}"}}'
    for _ in range(3):
        # Each life is long enough to be seen, and each start seen before the next.
        _wait(lambda: bool(prometheus.query(f"{uptime} > 4")), "the node is not scraped")
        cluster.nodes[3].kill()
        cluster.start(3)
        _wait(lambda: bool(prometheus.query(f"{uptime} < 4")), "the start is not seen")
    prometheus.fires("DragomanNodeRestarts", instance=instance)


def _releases(cluster: ServedCluster, prometheus: Prometheus) -> None:
    prometheus.quiet("DragomanMixedReleases")
    cluster.nodes[2].stop()
    cluster.modules[2] = "deploy_check.other_release"
    cluster.start(2)
    prometheus.fires("DragomanMixedReleases")
    cluster.nodes[2].stop()
    del cluster.modules[2]
    cluster.start(2)
    # The series of the other release ends five minutes after its last sample, or at once where
    # the target no longer has it.
    prometheus.quiet("DragomanMixedReleases")


def _connections(cluster: ServedCluster, prometheus: Prometheus) -> None:
    prometheus.quiet("DragomanConnectionsRefused")
    host, _, port = cluster.address(2, "kafka").partition(":")
    change = ("config", "set", "max.connections=1", "--node", "2", "--server", cluster.url(2))
    output_of((*_DRAGOMAN, *change))
    with ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            client.settimeout(10)
        prometheus.fires(
            "DragomanConnectionsRefused", instance=cluster.address(2, "http"), listener="kafka"
        )
    unset = ("config", "unset", "max.connections", "--node", "2", "--server", cluster.url(2))
    output_of((*_DRAGOMAN, *unset))


def _certificate(cluster: ServedCluster, prometheus: Prometheus) -> None:
    # Until here the certificates of all nodes are for years.
    prometheus.quiet("DragomanCertificateExpires")
    authority = authority_in(str(_HOME / "certificates"))
    folder = str(_HOME / "certificates-1")
    write_pair(folder, "server", authority.server(["localhost"], days=3))
    cluster.nodes[1].signal(signal.SIGHUP)
    prometheus.fires(
        "DragomanCertificateExpires", instance=cluster.address(1, "http"), listener="kafka-tls"
    )
    write_pair(folder, "server", authority.server(["localhost"]))
    prometheus.quiet("DragomanCertificateExpires")


def _damage(cluster: ServedCluster, prometheus: Prometheus) -> None:
    prometheus.quiet("DragomanDamage")
    # A topic without replicas: no other node has its records.
    url, where = cluster.url(1), ("--bootstrap", cluster.address(1, "kafka"))
    options = ("--partitions", "1", "--replication-factor", "1", "--config", "segment.bytes=16384")
    output_of((*_DRAGOMAN, "topic", "create", "fruit", *options, "--server", url))
    for number in range(8):
        lines = "".join(f"{number} {index} {'apple' * 20}\n" for index in range(100))
        output_of((*_DRAGOMAN, "produce", "fruit", *where), standard_input=lines)
    (leader,) = {
        node for node in (1, 2, 3) if any(cluster.data(node).glob("partitions/*-fruit-0/*.log"))
    }
    cluster.nodes[leader].stop()
    segment = sorted(cluster.data(leader).glob("partitions/*-fruit-0/*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)
    cluster.start(leader)
    read = ("consume", "fruit", "--max", "800", "--bootstrap", cluster.address(leader, "kafka"))
    subprocess.run((*_DRAGOMAN, *read), capture_output=True, env=ENVIRONMENT, timeout=60)
    instance = cluster.address(leader, "http")
    prometheus.fires("DragomanDamage", instance=instance)
    prometheus.fires("DragomanDamageFound", instance=instance)
    cluster.nodes[leader].stop()
    output_of((*_DRAGOMAN, "log", "repair", cluster.data(leader)))
    cluster.start(leader)
    prometheus.quiet("DragomanDamage")


def _captures(cluster: ServedCluster, prometheus: Prometheus) -> None:
    port = next(free_ports())
    instance = f"127.0.0.1:{port}"
    to = ("--server", f"http://{instance}")
    listen = ("--listen", f"http={instance}", "--listen", "kafka=127.0.0.1:0")
    database = LocalPostgres()
    with ServedNode("--data", str(_HOME / "capturing"), *listen).ready() as node:
        prometheus.scrape(*prometheus.targets, instance)
        try:
            dsn = database.start().dsn()
            _sql(dsn, "create table orders (id bigint primary key, note text)")
            add = ("cdc", "add", "shop", "--tables", "public.orders", *to)
            environment = {**ENVIRONMENT, "DRAGOMAN_CDC_DSN": dsn}
            output_of((*_DRAGOMAN, *add), environment=environment)
            _restarting_capture(node, prometheus, instance)
            _unread_wal(dsn, to, prometheus, instance)
            _failed_capture(dsn, to, prometheus, instance)
        finally:
            database.stop()
            database.remove()
    prometheus.scrape(*prometheus.targets[:-1])


def _restarting_capture(node: ServedNode, prometheus: Prometheus, instance: str) -> None:
    prometheus.quiet("DragomanCaptureRestarts")
    restarts = f'dragoman_capture_restarts_total{{instance="{instance}"}}'
    for count in range(5):
        _wait(lambda: bool(_captures_of(node)), "there is no process of a capture")
        for process in _captures_of(node):
            os.kill(process, signal.SIGKILL)
        seen = f"{restarts} > {count}"
        _wait(lambda seen=seen: bool(prometheus.query(seen)), "no restart")  # type: ignore[misc]
    prometheus.fires("DragomanCaptureRestarts", instance=instance, capture="shop")


def _captures_of(node: ServedNode) -> list[int]:
    children = Path(f"/proc/{node.process.pid}/task/{node.process.pid}/children").read_text()
    return [
        int(child)
        for child in children.split()
        if b"dragoman.cdc" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def _unread_wal(dsn: str, to: tuple[str, ...], prometheus: Prometheus, instance: str) -> None:
    # A bound that this check can reach.
    bound = {"10737418240": "4194304"}
    _wait(
        lambda: bool(prometheus.query('dragoman_captures{state="streaming"} == 1')),
        "the capture does not stream",
    )
    prometheus.quiet("DragomanCaptureRetainsWal")
    output_of((*_DRAGOMAN, "cdc", "pause", "shop", *to))
    rows = "select n, repeat(md5(n::text), 30) from generate_series(1, 20000) n"
    _sql(dsn, f"insert into orders {rows}")
    prometheus.fires("DragomanCaptureRetainsWal", bound, instance=instance, capture="shop")
    output_of((*_DRAGOMAN, "cdc", "resume", "shop", *to))
    _sql(dsn, "checkpoint")
    prometheus.quiet("DragomanCaptureRetainsWal", bound)


def _failed_capture(dsn: str, to: tuple[str, ...], prometheus: Prometheus, instance: str) -> None:
    prometheus.quiet("DragomanCaptureFailed")
    output_of((*_DRAGOMAN, "cdc", "pause", "shop", *to))
    drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active"
    _wait(lambda: bool(_sql(dsn, drop)), "the slot stays active")
    output_of((*_DRAGOMAN, "cdc", "resume", "shop", *to))
    prometheus.fires("DragomanCaptureFailed", instance=instance, state="failed")
    output_of((*_DRAGOMAN, "cdc", "remove", "shop", *to))
    prometheus.quiet("DragomanCaptureFailed")


def _sql(dsn: str, statement: str) -> int:
    """How many rows it is about."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(statement).rowcount


_FAULTS = (
    *(_dead_node, _full_disk, _restarts, _releases, _connections, _certificate),
    *(_damage, _captures),
)


def check() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)
    _HOME.mkdir(parents=True)
    authority = authority_in(str(_HOME / "certificates"))
    nodes = (1, 2, 3)
    options: list[str] = ["--set", "listener.kafka-tls.tls=required"]
    with ServedCluster(_HOME, len(nodes), *options, listeners=("kafka-tls",)) as cluster:
        for node in nodes:
            folder = _HOME / f"certificates-{node}"
            folder.mkdir()
            write_pair(str(folder), "server", authority.server(["localhost"]))
        begin = cluster.begin
        cluster.begin = lambda node, *more, **named: begin(  # type: ignore[method-assign]
            node,
            *("--set", f"ssl.certificate.file={_HOME}/certificates-{node}/server.pem"),
            *("--set", f"ssl.key.file={_HOME}/certificates-{node}/server-key.pem"),
            *more,
            **named,
        )
        cluster.start(*nodes)
        with _prometheus(*(cluster.address(node, "http") for node in nodes)) as prometheus:
            for fault in _FAULTS:
                fault(cluster, prometheus)
            print(f"  without a fault here: {', '.join(sorted(prometheus.untried))}")
