"""More connections than the node has descriptors."""

from __future__ import annotations

from contextlib import ExitStack, suppress

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from attack.target import Target, settle

_FEW = ("prlimit", "--nofile=200")
_HOLD_S = 5.0
#: Each partition has a segment file of its own.
_PARTITIONS = 100


def idle_connections(listeners: tuple[str, ...], count: int, target: Target) -> str:
    """Idle connections, and then files that the log has to open beside them."""
    refused = 0
    with ExitStack() as sockets:
        for number in range(count):
            try:
                sockets.enter_context(target.connect(listeners[number % len(listeners)]))
            except OSError:
                refused += 1
        settle(_HOLD_S / 2)
        made = _make_topic(target)
        settle(_HOLD_S / 2)
        return f"{target.descriptors()} descriptors, {refused} refused, topic {made}"


def _make_topic(target: Target) -> str:
    # As many clients are turned away as there are descriptors missing: this one may be, too.
    admin = AdminClient({"bootstrap.servers": target.cluster.bootstrap(), "log_level": 0})
    with suppress(KafkaException):
        topic = NewTopic("many", _PARTITIONS, replication_factor=target.count)
        admin.create_topics([topic], request_timeout=5.0)["many"].result()
        return "made"
    return "not made"


_ALL = ("kafka", "rocketmq", "cursus", "minibroker", "mlog", "any", "http", "peer")
ATTACKS = (
    ("descriptors, 400 idle", lambda target: idle_connections(("kafka",), 400, target), _FEW),
    ("descriptors, all listeners", lambda target: idle_connections(_ALL, 800, target), _FEW),
)
