"""AlterConfigs (33), versions 0 to 2, and IncrementalAlterConfigs (44), versions 0 and 1.

The old request replaces all overrides of a resource. The new one changes single keys, and appends
to or subtracts from lists. Topics, brokers and groups can be altered. Without an override, a key of
a topic or group has the value of the node's setting, and a node's setting has its value from the
node's start. As in Kafka, a broker accepts unknown keys (`config/dynamic.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

from dragoman.broker.administration import config_changes, recorded
from dragoman.broker.errors import InvalidConfig
from dragoman.config.dynamic import is_shown
from dragoman.config.keys import Key, Kind, format_value, near_match
from dragoman.config.overrides import GROUP_CONFIG, TOPIC_CONFIG
from dragoman.config.settings import keys_of
from dragoman.errors import DecodeError
from dragoman.limits import CONFIG_KEYS_PER_REQUEST_MAX
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.configs import ResourceType, group_of, node_of, unknown_type
from dragoman.protocols.kafka.handlers.refusals import wire_code, wire_text
from dragoman.protocols.kafka.handlers.resources import topic_of
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.protocols.kafka.handlers.slices import gather
from dragoman.security.access import Operation, Resource

#: Maps the current overrides to the new ones.
Alter: TypeAlias = Callable[[Mapping[str, str]], dict[str, str]]
#: The text of a key's value without its override.
Fallback: TypeAlias = Callable[[str], str]


class _Resource(NamedTuple):
    kind: int
    name: str
    #: Builds the change from the known keys, and their values without an override.
    altered: Callable[[Mapping[str, Key], Fallback], Alter]


class _Change(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Result = TypeVar("Result", bound=m.Message)


# ---- the two requests


@awaited
async def handle_alter(call: Call) -> m.AlterConfigsResponse:
    request = call.decode(m.AlterConfigsRequest)
    resources = [
        _Resource(each.resource_type, each.resource_name, partial(_replacement, each.configs))
        for each in request.resources
    ]
    alteration = _Alteration(call, resources, request.validate_only)
    return m.AlterConfigsResponse(
        responses=await alteration.results(m.AlterConfigsResponseResource)
    )


@awaited
async def handle_incremental(call: Call) -> m.IncrementalAlterConfigsResponse:
    request = call.decode(m.IncrementalAlterConfigsRequest)
    resources = [
        _Resource(
            each.resource_type,
            each.resource_name,
            partial(_Increments, each.configs, takes_any=each.resource_type == ResourceType.BROKER),
        )
        for each in request.resources
    ]
    alteration = _Alteration(call, resources, request.validate_only)
    return m.IncrementalAlterConfigsResponse(
        responses=await alteration.results(m.IncrementalAlterConfigsResponseResource)
    )


# ---- the new overrides of a resource


def _replacement(
    configs: Sequence[m.AlterConfigsRequestConfig], _: Mapping[str, Key], __: Fallback
) -> Alter:
    _require_distinct([each.name for each in configs])
    config: dict[str, str] = {}
    for each in configs:
        if each.value is None:
            raise DecodeError(f"{each.name} has no value")
        config[each.name] = each.value
    return lambda _: config


class _Increments:
    """Changes of single keys, applied to the current overrides."""

    def __init__(
        self,
        changes: Sequence[m.IncrementalAlterConfigsRequestConfig],
        keys: Mapping[str, Key],
        fallback: Fallback,
        *,
        takes_any: bool = False,
    ) -> None:
        _require_distinct([each.name for each in changes])
        self._changes = changes
        self._takes_any = takes_any
        self._keys = keys
        self._fallback = fallback

    def __call__(self, current: Mapping[str, str]) -> dict[str, str]:
        config = dict(current)
        for change in self._changes:
            self._apply(change, config)
        return config

    def _apply(
        self, change: m.IncrementalAlterConfigsRequestConfig, config: dict[str, str]
    ) -> None:
        name, value = change.name, change.value
        key = self._keys.get(name)
        if key is None and not self._takes_any:
            raise InvalidConfig(f"unknown configuration {name!r}{near_match(name, self._keys)}")
        if change.config_operation == _Change.DELETE:
            config.pop(name, None)
            return
        if value is None:
            raise DecodeError(f"{name} has no value")
        match change.config_operation:
            case _Change.SET:
                config[name] = value
            case _Change.APPEND:
                words = self._words(name, config)
                added = [each for each in _split(value) if each not in words]
                config[name] = format_value((*words, *added))
            case _Change.SUBTRACT:
                gone = _split(value)
                kept = [each for each in self._words(name, config) if each not in gone]
                config[name] = format_value(tuple(kept))
            case unknown:
                raise DecodeError(f"{name}: operation {unknown} is not known")

    def _words(self, name: str, config: Mapping[str, str]) -> list[str]:
        key = self._keys.get(name)
        if key is None or key.kind is not Kind.LIST:
            raise InvalidConfig(f"{name} is not a list, nothing can be added to or taken from")
        return _split(config[name] if name in config else self._fallback(name))


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _require_distinct(names: list[str]) -> None:
    if len(names) > CONFIG_KEYS_PER_REQUEST_MAX:
        raise DecodeError(f"{len(names)} keys in one resource")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DecodeError(f"{repeated[0]!r} is in the request more than once")


# ---- applying the changes


class _Alteration:
    """The resources of one request, each altered independently."""

    def __init__(self, call: Call, resources: list[_Resource], validate_only: bool) -> None:
        self._call = call
        self._resources = resources
        self._validate_only = validate_only
        self._named = Counter((each.kind, each.name) for each in resources)

    async def results(self, result: Callable[..., Result]) -> list[Result]:
        errors = await gather(self._call, self._resources, self._alter)
        return [
            result(
                error_code=wire_code(error),
                error_message=wire_text(error),
                resource_type=resource.kind,
                resource_name=resource.name,
            )
            for resource, error in zip(self._resources, errors, strict=True)
        ]

    async def _alter(self, resource: _Resource) -> None:
        if self._named[resource.kind, resource.name] > 1:
            raise DecodeError("the resource is in the request more than once")
        match resource.kind:
            case ResourceType.TOPIC:
                await self._alter_topic(resource)
            case ResourceType.BROKER:
                await self._alter_node(resource)
            case ResourceType.GROUP:
                await self._alter_group(resource)
            case ResourceType.CLIENT_METRICS:
                self._call.authorize_cluster(Operation.ALTER_CONFIGS)
                raise InvalidConfig("client metrics are not collected")
            case unknown:
                raise unknown_type(unknown)

    async def _alter_topic(self, resource: _Resource) -> None:
        call, broker, name = self._call, self._call.service.broker, resource.name
        call.authorize(Operation.ALTER_CONFIGS, Resource.TOPIC, name)
        topic_of(call, name)

        def fallback(key: str) -> str:
            return TOPIC_CONFIG[key].default_text(broker.settings)

        alter = resource.altered(TOPIC_CONFIG, fallback)
        if self._validate_only:
            broker.topics.check_altered(name, alter)
        else:
            await broker.topics.alter_config(name, alter, call.actor)

    async def _alter_node(self, resource: _Resource) -> None:
        call, broker = self._call, self._call.service.broker
        call.authorize_cluster(Operation.ALTER_CONFIGS)
        node_id = node_of(call, resource.name)

        def fallback(key: str) -> str:
            # A node's own overrides take precedence over the cluster-wide ones.
            return format_value(broker.node_configs.cluster_wide().value(key))

        alter = resource.altered(keys_of(broker.settings), fallback)
        if self._validate_only:
            broker.node_configs.check_altered(node_id, alter)
        else:
            details: list[str] = []
            with recorded(broker.audit, "config.change", call.actor, f"node:{node_id}", details):
                await broker.node_configs.alter(node_id, _noting(alter, details, is_shown))

    async def _alter_group(self, resource: _Resource) -> None:
        call, broker = self._call, self._call.service.broker
        call.authorize(Operation.ALTER_CONFIGS, Resource.GROUP, resource.name)
        group_id = group_of(resource.name)

        def fallback(key: str) -> str:
            return format_value(broker.settings.value(GROUP_CONFIG[key].node_key))

        alter = resource.altered(GROUP_CONFIG, fallback)
        if self._validate_only:
            broker.group_configs.check_altered(group_id, alter)
        else:
            details: list[str] = []
            with recorded(broker.audit, "group.config", call.actor, f"group:{group_id}", details):
                await broker.group_configs.alter(group_id, _noting(alter, details))


def _noting(
    alter: Alter, details: list[str], is_shown: Callable[[str], bool] = lambda _key: True
) -> Alter:
    """The same change, which leaves what it changes in `details`."""

    def altered(config: Mapping[str, str]) -> dict[str, str]:
        after = alter(config)
        details[:] = config_changes(config, after, is_shown)
        return after

    return altered
