"""DescribeConfigs (32), versions 1 to 4, and ListConfigResources (74), versions 0 and 1.

A topic returns all of its keys. A broker returns all settings of the node when the request names
its id, and the cluster-wide overrides when the name is empty. A group returns the keys that groups
may override, whether it exists or not. Client metrics are not collected, so a request about them
succeeds with no keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import msgspec

from dragoman.cluster.metadata import EVERY_NODE
from dragoman.config.keys import Key, Kind, Source
from dragoman.config.overrides import (
    ConfigEntry,
    Synonym,
    config_entry,
    describe_group_config,
    describe_node_config,
    describe_topic_config,
)
from dragoman.config.settings import Settings
from dragoman.errors import DecodeError, DragomanError
from dragoman.limits import GROUP_ID_BYTES_MAX
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.resources import is_visible, topic_of
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.handlers.slices import answer_array
from dragoman.security.access import CLUSTER_NAME, Operation, Resource


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


SOURCES: Final[dict[Source, int]] = {
    Source.TOPIC: 1,
    Source.GROUP: 8,
    Source.DYNAMIC_NODE: 2,
    Source.DYNAMIC_CLUSTER: 3,
    Source.NODE: 4,
    Source.DEFAULT: 5,
}
TYPES: Final[dict[Kind, int]] = {
    Kind.BOOLEAN: 1,
    Kind.STRING: 2,
    Kind.INT: 3,
    Kind.LONG: 5,
    Kind.DOUBLE: 6,
    Kind.LIST: 7,
}
#: The type of a key that has no effect here and is not one of Kafka's.
UNKNOWN_TYPE: Final = 0
_NODE_DIGITS_MAX = 10
#: Cost of a resource, which has dozens of keys, in items of the work queue.
_DESCRIBE_ITEMS = 50


def handle_describe(call: Call) -> None:
    request = call.decode(m.DescribeConfigsRequest)
    # A resource that is named twice is described once.
    resources = {(each.resource_type, each.resource_name): each for each in request.resources}
    elements = (
        (_describe(call, request, resource), _DESCRIBE_ITEMS) for resource in resources.values()
    )
    answer_array(call, m.DescribeConfigsResponse(), "results", elements)


def _describe(
    call: Call, request: m.DescribeConfigsRequest, resource: m.DescribeConfigsRequestResource
) -> m.DescribeConfigsResponseResource:
    described = m.DescribeConfigsResponseResource(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        entries = _entries(call, resource)
    except DragomanError as error:
        return msgspec.structs.replace(
            described, error_code=wire_code(error), error_message=str(error)
        )
    # A null list of keys means all keys; some clients send an empty list instead.
    wanted = set(resource.configuration_keys or ())
    shown = [_config(entry, request) for entry in entries if not wanted or entry.key.name in wanted]
    return msgspec.structs.replace(described, configs=shown)


def _entries(call: Call, resource: m.DescribeConfigsRequestResource) -> Iterable[ConfigEntry]:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            call.authorize(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name)
            topic = topic_of(call, name)
            return describe_topic_config(call.service.broker.settings, topic.config)
        case ResourceType.BROKER:
            call.authorize_cluster(Operation.DESCRIBE_CONFIGS)
            return _node_entries(call, node_of(call, name))
        case ResourceType.GROUP:
            call.authorize(Operation.DESCRIBE_CONFIGS, Resource.GROUP, name)
            broker = call.service.broker
            return describe_group_config(broker.settings, broker.group_configs.of(group_of(name)))
        case ResourceType.CLIENT_METRICS:
            call.authorize_cluster(Operation.DESCRIBE_CONFIGS)
        case _:
            raise unknown_type(resource.resource_type)
    if not name:
        raise DecodeError("the resource needs a name")
    return ()


def _node_entries(call: Call, node_id: int) -> Iterable[ConfigEntry]:
    broker = call.service.broker
    if node_id == EVERY_NODE:
        shown = [
            entry
            for entry in describe_node_config(broker.node_configs.cluster_wide())
            if entry.source is Source.DYNAMIC_CLUSTER
        ]
    else:
        shown = [*describe_node_config(broker.settings), *_derived_entries(call)]
    inert = broker.node_configs.inert_entries(node_id)
    acting = [_effective(call, entry) for entry in shown]
    return sorted([*acting, *inert], key=lambda entry: entry.key.name)


def _effective(call: Call, entry: ConfigEntry) -> ConfigEntry:
    """The entry with the effective replication factor, because Kafka's clients do not accept 0."""
    if entry.key.name != "default.replication.factor":
        return entry
    broker = call.service.broker
    factor = str(broker.topics.factor_of_nodes(len(broker.image.nodes)))
    synonyms = [
        msgspec.structs.replace(each, text=factor) if each.text == "0" else each
        for each in entry.synonyms
    ]
    return config_entry(entry.key, synonyms)


def _derived_entries(call: Call) -> list[ConfigEntry]:
    """Entries for keys that Kafka's tools read and that are not settings of Dragoman."""
    settings = call.service.broker.settings
    bound = ",".join(f"{each.name}://{each.bind}" for each in settings.listeners)
    host, port = call.service.advertised(call.session.channel)
    protocols = ",".join(
        f"{each.name}:{_security_protocol(settings, each.name)}"
        for each in settings.listeners
        if each.protocol == "kafka"
    )
    return [
        _derived("broker.id", Kind.INT, str(settings.node_id), "The same as `node.id`."),
        _derived("log.dirs", Kind.STRING, settings.data, "The same as `data`."),
        _derived("listeners", Kind.STRING, bound, "Where the node's listeners are bound."),
        _derived(
            "advertised.listeners",
            Kind.STRING,
            f"kafka://{host}:{port}",
            "The address in replies on this connection.",
        ),
        _derived(
            "listener.security.protocol.map",
            Kind.STRING,
            protocols,
            "What Kafka calls the security of each listener of its clients.",
        ),
    ]


def _security_protocol(settings: Settings, listener: str) -> str:
    """The name in Kafka; a listener that only allows TLS or a login counts as one without."""
    security = settings.listener_security(listener)
    login = "SASL_" if security.authentication == "required" else ""
    return login + ("SSL" if security.tls == "required" else "PLAINTEXT")


def _derived(name: str, kind: Kind, text: str, doc: str) -> ConfigEntry:
    return ConfigEntry(
        key=Key(name=name, kind=kind, doc=doc),
        text=text,
        source=Source.NODE,
        synonyms=(Synonym(name, text, Source.NODE),),
        is_read_only=True,
    )


def _config(
    entry: ConfigEntry, request: m.DescribeConfigsRequest
) -> m.DescribeConfigsResponseConfig:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return m.DescribeConfigsResponseConfig(
        name=entry.key.name,
        value=None if entry.is_secret else entry.text,
        is_sensitive=entry.is_secret,
        read_only=entry.is_read_only,
        config_source=SOURCES[entry.source],
        synonyms=[
            m.DescribeConfigsResponseSynonym(
                name=each.name,
                value=None if entry.is_secret else each.text,
                source=SOURCES[each.source],
            )
            for each in synonyms
        ],
        config_type=UNKNOWN_TYPE if entry.is_secret else TYPES[entry.key.kind],
        documentation=entry.key.doc if request.include_documentation else None,
    )


# ---- listing resources

_EVERY_TYPE = tuple(ResourceType)
#: Version 0 lists only client metrics.
_CLIENT_METRICS_ONLY = (ResourceType.CLIENT_METRICS,)


def handle_list(call: Call) -> None:
    request = call.decode(m.ListConfigResourcesRequest)
    wanted: Iterable[int] = request.resource_types or _EVERY_TYPE
    if call.version == 0:
        wanted = _CLIENT_METRICS_ONLY
    if not call.is_allowed(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        call.reply(m.ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return
    if any(each not in _EVERY_TYPE for each in wanted):
        call.reply(m.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
        return
    call.reply(
        m.ListConfigResourcesResponse(
            config_resources=[
                m.ListConfigResourcesResponseResource(resource_name=name, resource_type=each)
                for each in sorted(set(wanted))
                for name in _names(call, each)
            ]
        )
    )


def _names(call: Call, resource_type: int) -> list[str]:
    image = call.service.broker.image
    match resource_type:
        case ResourceType.TOPIC:
            return sorted(filter(is_visible, image.topics))
        case ResourceType.BROKER:
            return [str(node) for node in sorted(image.nodes)]
        case ResourceType.GROUP:
            return sorted(image.group_configs)
        case _:
            return []


# ---- resolving names


def node_of(call: Call, name: str) -> int:
    """The node that a broker resource names; an empty name means all nodes."""
    if not name:
        return EVERY_NODE
    own = call.service.broker.node_id
    is_number = name.isascii() and name.isdigit() and len(name) <= _NODE_DIGITS_MAX
    if not is_number or int(name) != own:
        raise DecodeError(f"expected broker {own} or an empty name, got {name[:40]!r}")
    return own


def group_of(name: str) -> str:
    if not name:
        raise DecodeError("the resource needs a name")
    if len(name.encode()) > GROUP_ID_BYTES_MAX:
        raise DecodeError(f"the name of the group has {len(name)} characters")
    return name


def unknown_type(resource_type: int) -> DecodeError:
    return DecodeError(f"resource type {resource_type} has no configuration here")
