"""Checks of a running node over HTTP: its own checks, its cluster, its clock, its addresses."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Literal

import msgspec

from dragoman.api.values import Check, ClusterStatus, Health, NodeStatus
from dragoman.cli.diagnosis import console
from dragoman.cli.diagnosis.finding import Finding, ok, problem, warning
from dragoman.cli.remote import Remote
from dragoman.cli.status import CommandError
from dragoman.limits import CLOCK_JUMP_S, DOCTOR_CONNECT_S
from dragoman.plural import plural

#: What to type when a check of the node does not pass.
REMEDIES = {
    "recovery": "wait: its log says how far it is (`journalctl -u dragoman`)",
    "disk": "free room on its volume, or shorten retention: `log.retention.ms`, `retention.bytes`",
    "journal": "look at its disk: `dmesg`, `iostat -x 1`; other programs may use it",
    "quorum": "start the other nodes; `dragoman cluster status` on each shows whom it knows",
    "listeners": "free the port, or give the listener another: --listen NAME=HOST:PORT",
    "registration": "look at its log, and at its connections to the other nodes",
    "replication": "start the nodes that are missing; `dragoman cluster status` lists partitions",
    "damage": "`dragoman cluster status` lists it; stop the node, then `dragoman log repair DIR`",
    "descriptors": "LimitNOFILE=65536 in its systemd unit, then start it anew",
    "memory": "raise `memory.budget.bytes`, or find the clients that do not read their replies",
    "console": "`dragoman user create NAME` if there are no users; else see the log of the node",
    "certificates": "replace the files; the node reads them again by itself",
    "clock": "`timedatectl status`, and have NTP set the clock",
}


class Answer(msgspec.Struct, frozen=True):
    status: int
    date: str
    body: bytes


class Probe(Remote):
    """A node whose answers are looked at whatever their status."""

    @property
    def is_local(self) -> bool:
        """Whether the node is on this machine, reached by its administrator's socket."""
        return self._parts is None

    @property
    def host(self) -> str:
        """The name in its URL; empty: it is on this machine."""
        return "" if self._parts is None else self._parts.hostname or ""

    def tls(self) -> ssl.SSLContext:
        """What https is checked by. Raises `CommandError`."""
        return self._target.tls()

    def ask(self, path: str, question: bytes | None = None) -> Answer:
        """A GET, or a POST that only asks. Raises `CommandError` when there is no answer."""
        method: Literal["GET", "POST"] = "GET" if question is None else "POST"
        response, body = self._exchange(method, path, question)
        return Answer(response.status, response.headers.get("date", ""), body)


def checks(node: Probe) -> Iterator[Finding]:
    """All checks of a node that runs."""
    try:
        answer = node.ask("/readyz?format=json")
    except CommandError as error:
        remedy = "start it with `dragoman serve`, or name its HTTP listener with --server URL"
        yield problem("connection", str(error), remedy)
        return
    yield clock(answer.date, time.time())
    try:
        health = msgspec.json.decode(answer.body, type=Health)
    except (msgspec.DecodeError, UnicodeDecodeError):
        what = f"/readyz answers with status {answer.status} and no checks: an older release?"
        yield warning("health", what, "upgrade the node, or use the doctor of its release")
    else:
        yield from (of_check(each) for each in health.checks)
        yield from console.reached(health.checks, node.host, node.tls())
    try:
        status = node.get("/api/v1/cluster", ClusterStatus)
    except CommandError as error:
        remedy = "log in as a user who may describe the cluster: --token-file FILE, or unix:DIR"
        yield warning("cluster", f"its cluster cannot be seen: {error}", remedy)
        return
    yield from cluster(status)
    own = next((each for each in status.nodes if each.node_id == status.node_id), None)
    if own is not None:
        yield from addresses(own)


def of_check(check: Check) -> Finding:
    """A check that the node made itself."""
    if check.status == "ok":
        return ok(check.name, check.detail or "passed")
    level = warning if check.status == "warning" else problem
    detail = check.detail or "the node gives no details without the right to describe the cluster"
    return level(check.name, detail, REMEDIES.get(check.name, "look at the log of the node"))


def clock(date: str, now_s: float) -> Finding:
    """The node's clock against this machine's, by the header `Date`, which has whole seconds."""
    try:
        ahead_s = parsedate_to_datetime(date).timestamp() - now_s
    except ValueError:
        return warning("time", "the node's response has no date", "upgrade the node")
    if abs(ahead_s) > CLOCK_JUMP_S:
        what = f"the node's clock and this machine's differ by {ahead_s:+.0f} s"
        return warning("time", what, "`timedatectl status` on both, and have NTP set the clocks")
    return ok("time", "the node's clock is that of this machine")


def cluster(status: ClusterStatus) -> Iterator[Finding]:
    if status.controller is None:
        remedy = "start more of its nodes: the metadata needs a majority of the voters"
        yield problem("cluster", "the metadata has no leader", remedy)
    gone = [each for each in status.nodes if not each.alive]
    if gone:
        names = ", ".join(str(each.node_id) for each in gone)
        remedy = "start them, or `dragoman cluster remove NODE` for one that will not return"
        yield problem("cluster", f"nodes that are not alive: {names}", remedy)
    else:
        yield ok("cluster", f"all nodes are alive: {len(status.nodes)}")
    if status.leaderless:
        what = f"{plural(status.leaderless, 'partition')} without a leader"
        remedy = "start the nodes that hold them; as a last resort `dragoman cluster unclean-elect`"
        yield problem("partitions", what, remedy)
    if status.under_replicated:
        what = f"{plural(status.under_replicated, 'under-replicated partition')}"
        yield warning("partitions", what, "`dragoman cluster status` lists them")
    if not status.leaderless and not status.under_replicated:
        yield ok("partitions", f"all {status.partitions} have their replicas in sync")
    levels = {each.feature_level for each in status.nodes if each.feature_level is not None}
    if len(levels) > 1:
        what = f"nodes of different releases: feature levels {', '.join(map(str, sorted(levels)))}"
        yield warning("releases", what, "upgrade the nodes that have the lower level, one by one")


def addresses(node: NodeStatus) -> Iterator[Finding]:
    """Whether clients on this machine reach what the node advertises."""
    for each in node.listeners:
        address = each.advertised
        if address is None or each.name == "peer":
            continue
        host, _, number = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(number)), DOCTOR_CONNECT_S).close()
        except OSError as error:
            what = (
                f"{each.name} is advertised as {address}, and from here: {error.strerror or error}"
            )
            remedy = f"give the node --advertise {each.name}=HOST:PORT that its clients can reach"
            yield warning("addresses", what, remedy)
        else:
            yield ok("addresses", f"{each.name} is reached as advertised, at {address}")
