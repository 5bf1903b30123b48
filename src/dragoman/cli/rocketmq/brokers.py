"""Commands about brokers."""

from __future__ import annotations

import msgspec

from dragoman.cli.output import Output
from dragoman.cli.rocketmq.options import (
    DEFAULT_NAMESRV,
    Broker,
    Cluster,
    NameServers,
    administering,
    show,
)
from dragoman.client_core.errors import ClientError


class BrokerRow(msgspec.Struct, frozen=True):
    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str
    in_tps: str
    out_tps: str


class StatusRow(msgspec.Struct, frozen=True):
    broker: str
    name: str
    value: str


def cluster_list(*, namesrv: NameServers = DEFAULT_NAMESRV, output: Output = "table") -> None:
    """List clusters and their brokers."""
    rows = []
    with administering(namesrv) as admin:
        for name, each in sorted(admin.examine_broker_cluster_info().broker_addr_table.items()):
            for number, address in sorted(each.broker_addrs.items()):
                try:
                    table = admin.fetch_broker_runtime_stats(address)
                except ClientError:
                    # The others are shown all the same.
                    table = {"brokerVersionDesc": "unreachable"}
                rows.append(
                    BrokerRow(
                        each.cluster,
                        name,
                        int(number),
                        address,
                        table.get("brokerVersionDesc", ""),
                        _last_seconds(table.get("putTps", "")),
                        _last_seconds(
                            table.get("getTransferredTps") or table.get("getTransferedTps", "")
                        ),
                    )
                )
    show(rows, BrokerRow, output)


def _last_seconds(triple: str) -> str:
    """Of the last ten seconds, one and ten minutes, the first."""
    return triple.split()[0] if triple.split() else ""


def broker_status(
    *,
    broker: Broker = None,
    cluster: Cluster = None,
    namesrv: NameServers = DEFAULT_NAMESRV,
    output: Output = "table",
) -> None:
    """Show what brokers tell about themselves."""
    rows = []
    with administering(namesrv) as admin:
        if broker is not None:
            addresses = [broker]
        else:
            info = admin.examine_broker_cluster_info()
            addresses = [
                each.broker_addrs["0"]
                for _, each in sorted(info.broker_addr_table.items())
                if "0" in each.broker_addrs and cluster in (None, each.cluster)
            ]
        for address in addresses:
            table = admin.fetch_broker_runtime_stats(address)
            rows += [StatusRow(address, name, value) for name, value in sorted(table.items())]
    show(rows, StatusRow, output)


COMMANDS = {
    "cluster-list clusterList": cluster_list,
    "broker-status brokerStatus": broker_status,
}
