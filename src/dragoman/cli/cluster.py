"""`dragoman cluster`: the state of the cluster, and what operators ask of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from dragoman.api.values import (
    ClusterStatus,
    Elected,
    Election,
    MlogEvents,
    Moves,
    NewMoves,
    NewNode,
    PartitionStatus,
    Told,
    Transfer,
)
from dragoman.cli.local_cluster import up
from dragoman.cli.output import Output, print_fields, print_json, print_table
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server
from dragoman.cli.status import USAGE, CommandError, say

app = App(name="cluster", help="State of the cluster.")
app.command(up)

_PATH = "/api/v1/cluster"
#: The lead of the metadata, to any node other than the one that has it.
_ANYBODY = -1
_LOOK_S = 0.5
_BEGUN = "moves were begun before, and go on"


@app.command
def status(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Show nodes, listeners, totals, and partitions that want attention."""
    cluster = Remote(server).get(_PATH, ClusterStatus)
    if output == "json":
        print_json(cluster)
    else:
        _print_status(cluster)


def _print_status(cluster: ClusterStatus) -> None:
    print_fields(
        (
            ("cluster", cluster.cluster_id),
            ("answered by node", cluster.node_id),
            ("controller", cluster.controller),
            ("version", cluster.version),
            ("feature level", cluster.feature_level),
            ("ready", cluster.ready),
            ("durability", cluster.durability),
            ("uptime", f"{cluster.uptime_ms / 1000:.1f} s"),
            ("topics", cluster.topics),
            ("partitions", cluster.partitions),
            ("without leader", cluster.leaderless),
            ("under-replicated", cluster.under_replicated),
            ("being moved", cluster.moving),
            ("damaged ranges", cluster.damaged_ranges),
            ("groups", cluster.groups),
        )
    )
    print()
    print_table(
        ("NODE", "ALIVE", "QUORUM", "RACK", "REPLICAS", "LEADS", "LEVEL"),
        (
            (
                node.node_id,
                node.alive,
                "leader" if node.node_id == cluster.controller else node.role,
                node.rack or None,
                node.replicas,
                node.leads,
                node.feature_level,
            )
            for node in cluster.nodes
        ),
    )
    print()
    print_table(
        ("NODE", "LISTENER", "BOUND", "ADVERTISED"),
        (
            (node.node_id, listener.name, listener.bound, listener.advertised)
            for node in cluster.nodes
            for listener in node.listeners
        ),
    )
    if cluster.attention:
        print()
        _print_attention(cluster.attention)
    if cluster.few_copies:
        print()
        _print_few_copies(cluster)
    if cluster.damage or cluster.journal_damage:
        print()
        _print_damage(cluster)


def _print_damage(cluster: ClusterStatus) -> None:
    if cluster.damage:
        print_table(
            ("TOPIC", "PARTITION", "DAMAGED FROM", "NEXT GOOD", "FILE", "BYTE"),
            (
                (
                    each.topic,
                    each.partition,
                    each.first_offset,
                    each.next_offset,
                    each.path,
                    each.position,
                )
                for each in cluster.damage
            ),
        )
        say(
            f"node {cluster.node_id} cannot read these records. Other replicas are copied by "
            "themselves; without any, read on at the next good offset, or stop the node and run "
            "`dragoman log repair DIRECTORY`"
        )
    for each in cluster.journal_damage:
        say(f"node {cluster.node_id} has lost acknowledged records: {each}")


def _print_few_copies(cluster: ClusterStatus) -> None:
    print_table(
        ("TOPIC", "COPIES", "POSSIBLE"),
        ((each.topic, each.copies, cluster.copies) for each in cluster.few_copies),
    )
    nodes = ",".join(str(each.node_id) for each in cluster.nodes if each.alive)
    say(
        "more copies of a topic: dragoman cluster reassign --topic TOPIC "
        f"--nodes {nodes} --factor {cluster.copies}"
    )


def _print_attention(partitions: tuple[PartitionStatus, ...]) -> None:
    print_table(
        ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN SYNC", "MOVING TO", "NOTE"),
        (
            (
                each.topic,
                each.partition,
                each.leader,
                each.replicas,
                each.in_sync,
                each.target or None,
                _note(each),
            )
            for each in partitions
        ),
    )


def _note(partition: PartitionStatus) -> str | None:
    if partition.leader is None:
        return "no leader: start one of its replicas that was in sync"
    if partition.unclean_epoch is not None:
        return f"unclean election in epoch {partition.unclean_epoch}: records were given up"
    return None


@app.command
def mlog_events(*, server: Server = DEFAULT_SERVER) -> None:
    """Print the metadata as the events that a cluster of mlog would have written down, one a line.

    They lead from nothing to the topics and nodes that there are.
    """
    for event in Remote(server).get(f"{_PATH}/mlog-events", MlogEvents).items:
        print(bytes(event).decode())


@app.command
def add(node: str, /, *, server: Server = DEFAULT_SERVER) -> None:
    """Let a node join.

    Parameters
    ----------
    node
        NODE@HOST:PORT, its number and where the other nodes reach it.
    """
    number, at, address = node.partition("@")
    if not at or not number.isdecimal():
        raise CommandError(f"expected NODE@HOST:PORT, got {node!r}", USAGE)
    remote = Remote(server)
    told = remote.post(f"{_PATH}/nodes", NewNode(node_id=int(number), address=address), Told)
    say(told.detail)
    peers = [
        f"{each.node_id}@{listener.advertised or listener.bound}"
        for each in remote.get(_PATH, ClusterStatus).nodes
        for listener in each.listeners
        if listener.name == "peer" and each.node_id != int(number)
    ]
    say(f"start it with: --node-id {number} --cluster {','.join([*peers, node])}")


@app.command
def remove(node: int, /, *, keep_replicas: bool = False, server: Server = DEFAULT_SERVER) -> None:
    """Take a node out of the cluster.

    What a node holds that is gone, others take, as far as there are any; without one to take it
    there is a replica less.

    Parameters
    ----------
    node
        Number of the node. It must hold no replicas, unless it is gone.
    keep_replicas
        Leave the replicas of a node that is gone: it comes back, with another disk, and gets them.
    """
    remote, path = Remote(server), f"{_PATH}/nodes/{node}"
    told = remote.remove(path, Told)
    if told.waiting_replicas and not keep_replicas:
        _wait(remote, _begin(remote, NewMoves(drain=node, shrink=True)))
        told = remote.remove(path, Told)
    say(told.detail)


@app.command
def transfer(
    *,
    metadata: bool = False,
    to: int | None = None,
    leaders_of: int | None = None,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Let other nodes lead.

    Parameters
    ----------
    metadata
        Hand over the lead of the metadata.
    to
        Node that shall lead the metadata; any other than the one that does when left out.
    leaders_of
        Node whose partitions others shall lead; it stays in sync.
    """
    wants_metadata = metadata or to is not None
    if not wants_metadata and leaders_of is None:
        raise CommandError("say what to hand over: --metadata, or --leaders-of NODE", USAGE)
    target = (to if to is not None else _ANYBODY) if wants_metadata else None
    wanted = Transfer(metadata_to=target, relieve=leaders_of)
    say(Remote(server).post(f"{_PATH}/transfers", wanted, Told).detail)


Nodes = Annotated[str, Parameter(help="Nodes that shall hold the replicas, as 1,2,3.")]


@app.command
def reassign(
    *,
    topic: str | None = None,
    partition: int | None = None,
    nodes: Nodes = "",
    factor: int | None = None,
    from_: Annotated[int | None, Parameter(name="--from")] = None,
    cancel: bool = False,
    throttle: int | None = None,
    wait: bool = True,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Move replicas to other nodes.

    Parameters
    ----------
    topic
        Topic to move; all when left out.
    partition
        Partition to move: to exactly the nodes named, the first of which is to lead.
    factor
        Replicas of each partition; as many as it has when left out.
    from_
        Node to empty: others take what it holds.
    cancel
        Take moves back that are under way.
    throttle
        Bytes per second that each node sends to new replicas, from now on; 0 for no limit.
    wait
        Wait until the moves are over.
    """
    wanted = NewMoves(
        topic=topic,
        partition=partition,
        nodes=_node_list(nodes),
        factor=factor,
        drain=from_,
        cancel=cancel,
        throttle=throttle,
    )
    remote = Remote(server)
    begun = _begin(remote, wanted)
    if wait and begun and not cancel:
        _wait(remote, begun)
    if output == "json":
        print_json(Moves(items=tuple(begun)))
    else:
        done = "taken back" if cancel else "moved" if wait else "being moved"
        say(f"partitions {done}: {len(begun)}")


def _node_list(text: str) -> tuple[int, ...]:
    parts = [each.strip() for each in text.split(",") if each.strip()]
    if not all(each.isdecimal() for each in parts):
        raise CommandError(f"--nodes: expected numbers such as 1,2,3, got {text!r}", USAGE)
    return tuple(map(int, parts))


def _begin(remote: Remote, wanted: NewMoves) -> list[PartitionStatus]:
    """All moves of a wish. A node begins as many as a request has time for, and counts the rest."""
    begun: list[PartitionStatus] = []
    asked = wanted
    with _progress("beginning moves") as show:
        while True:
            try:
                moves = remote.post(f"{_PATH}/moves", asked, Moves)
            except CommandError as error:
                raise _interrupted(
                    error, len(begun), "moves were begun before, and go on"
                ) from None
            begun += moves.items
            show(len(begun), len(begun) + moves.remaining)
            if not moves.remaining:
                return begun
            if not moves.items:
                text = CommandError(f"moves that cannot be begun: {moves.remaining}")
                raise _interrupted(text, len(begun), _BEGUN)
            # That has been done.
            asked = msgspec.structs.replace(wanted, throttle=None)


def _interrupted(error: CommandError, count: int, done: str) -> CommandError:
    """What was done before counts; the command can be repeated for the rest."""
    if not count:
        return error
    return CommandError(f"{error}; {count} {done}: repeat the command for the rest", error.status)


@contextmanager
def _progress(text: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, fed with how many are done and how many there are."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(text), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _wait(remote: Remote, begun: list[PartitionStatus]) -> None:
    """Until nothing of what was begun is under way."""
    ours = {(each.topic, each.partition) for each in begun}
    with _progress("moving replicas") as show:
        while True:
            cluster = remote.get(_PATH, ClusterStatus)
            moving = {(each.topic, each.partition) for each in cluster.attention if each.target}
            left = len(moving & ours)
            if cluster.moving > len(moving):
                # Of very many moves not all are shown: ours may be among the rest.
                left = min(len(ours), max(left, 1, cluster.moving))
            show(len(ours) - left, len(ours))
            if not left:
                return
            time.sleep(_LOOK_S)


@app.command(name="elect")
def elect_preferred(*, topic: str | None = None, server: Server = DEFAULT_SERVER) -> None:
    """Give the lead of partitions to their preferred leaders.

    Parameters
    ----------
    topic
        Topic to do it for; all when left out.
    """
    remote, elected = Remote(server), 0
    with _progress("electing leaders") as show:
        while True:
            try:
                told = remote.post(f"{_PATH}/elections", Election(topic=topic), Elected)
            except CommandError as error:
                raise _interrupted(error, elected, "leaders were elected before") from None
            elected += told.elected
            show(elected, elected + told.remaining)
            if not told.remaining:
                break
            if not told.elected:
                text = CommandError(f"leaders that cannot be elected: {told.remaining}")
                raise _interrupted(text, elected, "leaders were elected before")
    behind = f"; not in sync yet: {told.unable}" if told.unable else ""
    # A node of an earlier release says it in words only.
    say(f"preferred leaders elected: {elected}{behind}" if elected else told.detail)


@app.command
def unclean_elect(
    partition: str, node: int, /, *, yes: bool = False, server: Server = DEFAULT_SERVER
) -> None:
    """Let a node lead a partition although it may lack committed records: these are lost.

    Parameters
    ----------
    partition
        TOPIC-PARTITION, which nobody leads.
    node
        Node that has a replica of it.
    yes
        Do not ask.
    """
    topic, dash, index = partition.rpartition("-")
    if not dash or not index.isdecimal():
        raise CommandError(f"expected TOPIC-PARTITION, got {partition!r}", USAGE)
    say(
        f"node {node} may lack acknowledged records of {partition}. If it leads, they are lost for "
        "good, also on nodes that have them and come back. The metadata keeps that it was done."
    )
    if not yes and not _confirmed(partition):
        raise CommandError("nothing was done")
    wanted = Election(topic=topic, partition=int(index), unclean_node=node)
    say(Remote(server).post(f"{_PATH}/elections", wanted, Told).detail)


def _confirmed(partition: str) -> bool:
    print(f"Type {partition} to go on: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == partition
