"""A node's settings as `name=value` lines, shown and changed (25, 26, 318, 319).

Every setting goes by its own name; those that RocketMQ has a name for are there under that, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dragoman.config.dynamic import ReadOnlyKeyError, require_dynamic
from dragoman.config.settings import NODE_KEYS
from dragoman.errors import ConfigError, DragomanError
from dragoman.outcome import start
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import (
    BODY_BYTES_MAX,
    DEFAULT_CLUSTER,
    DELAY_LEVELS_S,
    READ_AND_WRITE,
    TRACE_TOPIC,
    Perm,
    Response,
)
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.routes import TEMPLATE_QUEUES
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource

_HOUR_MS: Final = 3_600_000
#: Names of RocketMQ that can be set, with ours and how values are read.
_NAMES: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "autoCreateTopicEnable": ("auto.create.topics.enable", str),
    "fileReservedTime": ("log.retention.ms", lambda hours: str(int(hours) * _HOUR_MS)),
}
#: Whether clients are sent to other brokers; the only permission that a broker changes is writing.
_PERMISSION: Final = "brokerPermission"
_PERMISSIONS: Final = {str(int(Perm.READ)): True, str(int(READ_AND_WRITE)): False}
#: What exports of 4.x do not do without.
_FIXED: Final = {
    "filterServerNums": "0",
    "msgTraceTopicName": TRACE_TOPIC,
    "slaveReadEnable": "false",
    "traceOn": "true",
    "traceTopicEnable": "false",
    "useTLS": "false",
}
_UNITS: Final = ((3600, "h"), (60, "m"), (1, "s"))


def authorize_cluster(call: Call, operation: Operation) -> None:
    """Raises `NotAuthorized`. The name is the one that rules know the cluster by."""
    call.session.authorize(operation, Resource.CLUSTER, "kafka-cluster")


def shown_settings(call: Call) -> dict[str, str]:
    service = call.service
    settings = service.broker.settings
    host, port = service.advertised(call.session.channel)
    name = call.node.broker_name
    shown = {
        "brokerClusterName": DEFAULT_CLUSTER,
        "brokerName": name,
        "brokerId": "0",
        "brokerIP1": host,
        "listenPort": str(port),
        "brokerRole": "SYNC_MASTER" if settings.is_clustered else "ASYNC_MASTER",
        "brokerPermission": str(
            int(Perm.READ if name in call.node.state.wiped else READ_AND_WRITE)
        ),
        "flushDiskType": "SYNC_FLUSH" if settings.durability == "fsync" else "ASYNC_FLUSH",
        "autoCreateTopicEnable": _text(settings.auto_create_topics_enable),
        "autoCreateSubscriptionGroup": "true",
        "defaultTopicQueueNums": str(TEMPLATE_QUEUES),
        "enablePropertyFilter": "true",
        "maxMessageSize": str(BODY_BYTES_MAX),
        "messageDelayLevel": " ".join(map(_level, DELAY_LEVELS_S)),
        "storePathRootDir": settings.data,
        "fileReservedTime": str(max(-1, settings.log_retention_ms // _HOUR_MS)),
        **_FIXED,
    }
    return shown | {each: _text(settings.value(each)) for each in NODE_KEYS}


def _level(seconds: int) -> str:
    return next(f"{seconds // unit}{name}" for unit, name in _UNITS if seconds % unit == 0)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def lines_of_request(call: Call) -> dict[str, str]:
    """In the body, or, as Go's client has them, as fields."""
    return bodies.read_lines(call.body) if len(call.body) else dict(call.fields)


def change_settings(call: Call, lines: Mapping[str, str]) -> None:
    """Of this node, durable and at once in force. Raises `DragomanError`; nothing changes then."""
    authorize_cluster(call, Operation.ALTER_CONFIGS)
    shown = shown_settings(call)
    # Tools send back what they were shown.
    changed = {name: value for name, value in lines.items() if shown.get(name) != value}
    permission = changed.pop(_PERMISSION, None)
    is_wiped = None if permission is None else _is_wiped(permission)
    changes = dict(_change(name, value, shown) for name, value in changed.items())

    def settings_changed(error: DragomanError | None) -> None:
        if error is not None or is_wiped is None:
            call.done(error)
        else:
            call.node.state.put_wiped(call.node.broker_name, is_wiped, call.done)

    if changes:
        broker = call.service.broker
        altered = broker.node_configs.alter(broker.node_id, lambda present: {**present, **changes})
        start(altered).then(settings_changed)
    else:
        settings_changed(None)


def _change(name: str, value: str, shown: Mapping[str, str]) -> tuple[str, str]:
    """Our key and what it is set to. Raises `Refused`."""
    key, read = _NAMES.get(name, (name, str))
    try:
        if key in NODE_KEYS or name not in shown:
            require_dynamic(key)
        else:
            raise ReadOnlyKeyError(f"{name} is read-only")
        return key, read(value)
    except (ConfigError, ValueError) as error:
        text = f"{name}={value[:100]} cannot be set while the node runs: {error}"
        raise Refused(Response.INVALID_PARAMETER, text) from None


def _is_wiped(permission: str) -> bool:
    """May clients write to this broker no more? Raises `Refused`."""
    if permission not in _PERMISSIONS:
        text = f"{_PERMISSION}={permission[:100]} cannot be set: it is one of 4 and 6"
        raise Refused(Response.INVALID_PARAMETER, text)
    return _PERMISSIONS[permission]


def handle_get_broker_config(call: Call) -> None:
    authorize_cluster(call, Operation.DESCRIBE_CONFIGS)
    version = bodies.DataVersion(counter=call.service.broker.changes.version)
    call.reply(
        fields={"version": bodies.encode(version).decode()},
        body=bodies.write_lines(shown_settings(call)),
    )


def handle_update_broker_config(call: Call) -> None:
    change_settings(call, lines_of_request(call))
