"""`dragoman cluster`: the state of the cluster as one node sees it."""

from __future__ import annotations

from cyclopts import App

from dragoman.api.values import ClusterStatus
from dragoman.cli.output import Output, print_fields, print_json, print_table
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server

app = App(name="cluster", help="State of the cluster.")


@app.command
def status(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Show nodes, listeners and totals."""
    cluster = Remote(server).get("/api/v1/cluster", ClusterStatus)
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
            ("ready", cluster.ready),
            ("durability", cluster.durability),
            ("uptime", f"{cluster.uptime_ms / 1000:.1f} s"),
            ("topics", cluster.topics),
            ("partitions", cluster.partitions),
            ("groups", cluster.groups),
        )
    )
    print()
    print_table(
        ("NODE", "ALIVE", "LISTENER", "BOUND", "ADVERTISED"),
        (
            (node.node_id, node.alive, listener.name, listener.bound, listener.advertised)
            for node in cluster.nodes
            for listener in node.listeners
        ),
    )
