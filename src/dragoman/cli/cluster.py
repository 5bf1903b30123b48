"""`dragoman cluster`: the state of the cluster, and changes of its nodes, leaders and replicas."""

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
from dragoman.cli.output import Fields, Lines, Output, Part, Table, show, show_change
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server
from dragoman.cli.status import USAGE, CommandError, say

app = App(name="cluster", help="Show the state of the cluster, and change its nodes and replicas.")
app.command(up)

_PATH = "/api/v1/cluster"
#: In a transfer, any node but the metadata leader.
_ANY_NODE = -1
_POLL_S = 0.5
_STARTED = "moves were started before and continue"


@app.command
def status(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Show nodes, listeners, totals, and partitions that need attention.

    Examples
    --------
    dragoman cluster status
    """
    cluster = Remote(server).get(_PATH, ClusterStatus)
    show(output, cluster, ClusterStatus, *_status(cluster))
    if output == "table":
        for advice in _advice(cluster):
            say(advice)


def _status(cluster: ClusterStatus) -> Iterator[Part]:
    yield Fields(
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
    yield Table(
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
    yield Table(
        ("NODE", "LISTENER", "BOUND", "ADVERTISED"),
        (
            (node.node_id, listener.name, listener.bound, listener.advertised)
            for node in cluster.nodes
            for listener in node.listeners
        ),
    )
    if cluster.attention:
        yield _attention(cluster.attention)
    if cluster.few_copies:
        rows = ((each.topic, each.copies, cluster.copies) for each in cluster.few_copies)
        yield Table(("TOPIC", "COPIES", "POSSIBLE"), rows)
    if cluster.damage:
        yield Table(
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


def _advice(cluster: ClusterStatus) -> Iterator[str]:
    if cluster.few_copies:
        nodes = ",".join(str(each.node_id) for each in cluster.nodes if each.alive)
        yield (
            "to add copies of a topic: dragoman cluster reassign --topic TOPIC "
            f"--nodes {nodes} --factor {cluster.copies}"
        )
    if cluster.damage:
        yield (
            f"node {cluster.node_id} cannot read these records. It copies them from other replicas "
            "by itself. If there are none, continue reading at the next good offset, or stop the "
            "node and run `dragoman log repair DIRECTORY`"
        )
    for each in cluster.journal_damage:
        yield f"node {cluster.node_id} has lost acknowledged records: {each}"


def _attention(partitions: tuple[PartitionStatus, ...]) -> Table:
    return Table(
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
        return "no leader: start a node whose replica was in sync"
    if partition.unclean_epoch is not None:
        return f"unclean election in epoch {partition.unclean_epoch}: records may be lost"
    return None


@app.command
def mlog_events(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Print the metadata as the events of an mlog cluster, one to a line.

    Applied to an empty cluster, the events create the current topics and nodes.

    Examples
    --------
    dragoman cluster mlog-events
    """
    events = Remote(server).get(f"{_PATH}/mlog-events", MlogEvents)
    if output == "csv":
        show(output, [MlogEvent(each) for each in events.items], MlogEvent)
        return
    show(output, events, MlogEvents, Lines(bytes(event).decode() for event in events.items))


class MlogEvent(msgspec.Struct, frozen=True):
    """A row of the CSV form of `cluster mlog-events`."""

    event: msgspec.Raw


class AddedNode(msgspec.Struct, frozen=True):
    """The JSON form of `cluster add`."""

    node_id: int
    address: str
    detail: str
    #: Options of `dragoman serve` for the new node.
    serve_options: str


@app.command
def add(node: str, /, *, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Add a node to the cluster.

    Parameters
    ----------
    node
        Number of the node and the address at which other nodes reach it, as NODE@HOST:PORT.

    Examples
    --------
    dragoman cluster add 4@10.0.0.4:9095
    """
    number, at, address = node.partition("@")
    if not at or not number.isdecimal():
        raise CommandError(f"NODE: expected NODE@HOST:PORT, got {node!r}", USAGE)
    remote = Remote(server)
    wanted = NewNode(node_id=int(number), address=address)
    detail = remote.post(f"{_PATH}/nodes", wanted, Told).detail
    peers = [
        f"{each.node_id}@{listener.advertised or listener.bound}"
        for each in remote.get(_PATH, ClusterStatus).nodes
        for listener in each.listeners
        if listener.name == "peer" and each.node_id != int(number)
    ]
    options = f"--node-id {number} --cluster {','.join([*peers, node])}"
    message = f"{detail}\nstart it with: {options}"
    show_change(output, message, AddedNode(int(number), address, detail, options), AddedNode)


@app.command
def remove(
    node: int,
    /,
    *,
    keep_replicas: bool = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Remove a node from the cluster.

    The replicas of a dead node are moved to other nodes. If no node can take a replica, its
    partition has one replica fewer.

    Parameters
    ----------
    node
        Number of the node. A live node must have no replicas.
    keep_replicas
        Keep the replicas of a dead node assigned to it, because it will return with an empty disk.

    Examples
    --------
    dragoman cluster remove 4
    """
    remote, path = Remote(server), f"{_PATH}/nodes/{node}"
    result = remote.remove(path, Told)
    if result.waiting_replicas and not keep_replicas:
        _wait(remote, _start_moves(remote, NewMoves(drain=node, shrink=True)))
        result = remote.remove(path, Told)
    show_change(output, result.detail, result, Told)


@app.command
def transfer(
    *,
    metadata: bool = False,
    to: int | None = None,
    leaders_of: int | None = None,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Transfer leadership to other nodes.

    Parameters
    ----------
    metadata
        Transfer the metadata leadership.
    to
        Next metadata leader; any other node by default.
    leaders_of
        Node to transfer partition leadership away from; its replicas stay in sync.

    Examples
    --------
    dragoman cluster transfer --leaders-of 2
    """
    wants_metadata = metadata or to is not None
    if not wants_metadata and leaders_of is None:
        raise CommandError("nothing to transfer: give --metadata or --leaders-of NODE", USAGE)
    target = (to if to is not None else _ANY_NODE) if wants_metadata else None
    wanted = Transfer(metadata_to=target, relieve=leaders_of)
    result = Remote(server).post(f"{_PATH}/transfers", wanted, Told)
    show_change(output, result.detail, result, Told)


Nodes = Annotated[str, Parameter(help="Nodes for the replicas, such as 1,2,3.")]


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
        Topic to move; all by default.
    partition
        Partition to move, to exactly the given nodes. The first one becomes its leader.
    factor
        Replicas of each partition; unchanged by default.
    from_
        Node to move all replicas away from.
    cancel
        Cancel moves in progress.
    throttle
        New limit of the bytes per second that each node sends to new replicas; 0 for no limit.
    wait
        Wait until the moves have finished.

    Examples
    --------
    dragoman cluster reassign --topic orders --nodes 1,2,3
    dragoman cluster reassign --from 4
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
    begun = _start_moves(remote, wanted)
    if wait and begun and not cancel:
        _wait(remote, begun)
    done = "no longer moving" if cancel else "moved" if wait else "moving"
    message = f"partitions {done}: {len(begun)}"
    if output == "json":
        show_change(output, message, Moves(items=tuple(begun)), Moves)
    else:
        show_change(output, message, begun, PartitionStatus)


def _node_list(text: str) -> tuple[int, ...]:
    parts = [each.strip() for each in text.split(",") if each.strip()]
    if not all(each.isdecimal() for each in parts):
        raise CommandError(f"--nodes: expected numbers such as 1,2,3, got {text!r}", USAGE)
    return tuple(map(int, parts))


def _start_moves(remote: Remote, wanted: NewMoves) -> list[PartitionStatus]:
    """Start all moves. A node starts as many as one request has time for, and returns the number of
    the others.
    """
    begun: list[PartitionStatus] = []
    request = wanted
    with _progress("starting moves") as show:
        while True:
            try:
                moves = remote.post(f"{_PATH}/moves", request, Moves)
            except CommandError as error:
                raise _interrupted(error, len(begun), _STARTED) from None
            begun += moves.items
            show(len(begun), len(begun) + moves.remaining)
            if not moves.remaining:
                return begun
            if not moves.items:
                failure = CommandError(f"moves that cannot be started: {moves.remaining}")
                raise _interrupted(failure, len(begun), _STARTED)
            # The first request has set the throttle.
            request = msgspec.structs.replace(wanted, throttle=None)


def _interrupted(error: CommandError, count: int, done: str) -> CommandError:
    """The error of a command that was interrupted and can be repeated for the rest of its work."""
    if not count:
        return error
    rest = f"{count} {done}: repeat the command for the rest"
    return CommandError(
        error.message,
        error.status,
        code=error.code,
        hint="; ".join(filter(None, (error.hint, rest))),
        request_id=error.request_id,
    )


@contextmanager
def _progress(text: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal. The returned function takes the number done and the total."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(text), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _wait(remote: Remote, begun: list[PartitionStatus]) -> None:
    """Returns when all these moves have finished."""
    ours = {(each.topic, each.partition) for each in begun}
    with _progress("moving replicas") as show:
        while True:
            cluster = remote.get(_PATH, ClusterStatus)
            moving = {(each.topic, each.partition) for each in cluster.attention if each.target}
            left = len(moving & ours)
            if cluster.moving > len(moving):
                # The status lists a bounded number of moves, so these may be among the others.
                left = min(len(ours), max(left, 1, cluster.moving))
            show(len(ours) - left, len(ours))
            if not left:
                return
            time.sleep(_POLL_S)


@app.command(name="elect")
def elect_preferred(
    *, topic: str | None = None, server: Server = DEFAULT_SERVER, output: Output = "table"
) -> None:
    """Elect the preferred leaders of partitions.

    Parameters
    ----------
    topic
        Topic whose leaders to elect; all by default.

    Examples
    --------
    dragoman cluster elect
    """
    remote, elected = Remote(server), 0
    with _progress("electing leaders") as show:
        while True:
            try:
                result = remote.post(f"{_PATH}/elections", Election(topic=topic), Elected)
            except CommandError as error:
                raise _interrupted(error, elected, "leaders were elected before") from None
            elected += result.elected
            show(elected, elected + result.remaining)
            if not result.remaining:
                break
            if not result.elected:
                failure = CommandError(f"leaders that cannot be elected: {result.remaining}")
                raise _interrupted(failure, elected, "leaders were elected before")
    behind = f"; not in sync yet: {result.unable}" if result.unable else ""
    # A node of an earlier release returns only the text.
    message = f"preferred leaders elected: {elected}{behind}" if elected else result.detail
    total = Elected(detail=message, elected=elected, unable=result.unable)
    show_change(output, message, total, Elected)


@app.command
def unclean_elect(
    partition: str,
    node: int,
    /,
    *,
    yes: bool = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Elect a leader that may lack committed records. The records that it lacks are lost.

    Parameters
    ----------
    partition
        Partition without a leader, as TOPIC-PARTITION.
    node
        Node with a replica of the partition.
    yes
        Do not ask for confirmation.

    Examples
    --------
    dragoman cluster unclean-elect orders-0 2
    """
    topic, dash, index = partition.rpartition("-")
    if not dash or not index.isdecimal():
        raise CommandError(f"PARTITION: expected TOPIC-PARTITION, got {partition!r}", USAGE)
    if output == "table" or not yes:
        say(
            f"node {node} may lack acknowledged records of {partition}. If it becomes the leader, "
            "they are lost for good, even on nodes that still have them. The metadata records the "
            "election."
        )
    if not yes and not _confirmed(partition):
        raise CommandError("not confirmed: nothing was changed", code="not_confirmed")
    wanted = Election(topic=topic, partition=int(index), unclean_node=node)
    result = Remote(server).post(f"{_PATH}/elections", wanted, Told)
    show_change(output, result.detail, result, Told)


def _confirmed(partition: str) -> bool:
    print(f"Type {partition} to continue: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == partition
