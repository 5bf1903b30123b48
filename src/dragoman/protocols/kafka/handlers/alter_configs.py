"""AlterConfigs (33), versions 0 to 2, and IncrementalAlterConfigs (44), versions 0 and 1.

The old request replaces all overrides of a resource, the new one changes single keys; a list may be
added to or taken from. Topics and brokers can be altered. What is taken from a topic falls back to
the node's setting, what is taken from a node to what it was started with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TypeAlias

from dragoman.broker.errors import InvalidConfig
from dragoman.config.keys import Key, Kind, format_value, near_match
from dragoman.config.settings import NODE_KEYS
from dragoman.config.topics import TOPIC_CONFIG
from dragoman.errors import DecodeError, DragomanError
from dragoman.limits import CONFIG_KEYS_PER_REQUEST_MAX
from dragoman.protocols.kafka.handlers.access import authorize, authorize_cluster
from dragoman.protocols.kafka.handlers.config_resources import (
    ResourceType,
    node_of,
    topic_of,
    unknown_type,
)
from dragoman.protocols.kafka.handlers.gathering import Gathering
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
)
from dragoman.security.authorizer import Operation, Resource

#: Overrides as they are to be, from those that are.
Alter: TypeAlias = Callable[[Mapping[str, str]], dict[str, str]]
#: What a key is without the override, as text.
Fallback: TypeAlias = Callable[[str], str]
Done: TypeAlias = Callable[[DragomanError | None], None]
_AnyResource: TypeAlias = AlterConfigsRequestResource | IncrementalAlterConfigsRequestResource


class _Change(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# ---- the two requests


def handle_alter(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, AlterConfigsRequest)
    resources = request.resources

    def build(results: list[DragomanError | None]) -> AlterConfigsResponse:
        return AlterConfigsResponse(
            responses=[
                AlterConfigsResponseResource(
                    error_code=0 if error is None else wire_code(error),
                    error_message=None if error is None else str(error),
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource, error in zip(resources, results, strict=True)
            ]
        )

    def altered(index: int, _: Mapping[str, Key], __: Fallback) -> Alter:
        return _replacement(resources[index].configs)

    _Altering(
        call, resources, request.validate_only, altered, Gathering(call, len(resources), build)
    )


def handle_incremental(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, IncrementalAlterConfigsRequest)
    resources = request.resources

    def build(results: list[DragomanError | None]) -> IncrementalAlterConfigsResponse:
        return IncrementalAlterConfigsResponse(
            responses=[
                IncrementalAlterConfigsResponseResource(
                    error_code=0 if error is None else wire_code(error),
                    error_message=None if error is None else str(error),
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource, error in zip(resources, results, strict=True)
            ]
        )

    def altered(index: int, keys: Mapping[str, Key], fallback: Fallback) -> Alter:
        return _Increments(resources[index].configs, keys, fallback)

    _Altering(
        call, resources, request.validate_only, altered, Gathering(call, len(resources), build)
    )


# ---- what a resource's overrides become


def _replacement(configs: Sequence[AlterConfigsRequestConfig]) -> Alter:
    _require_distinct([each.name for each in configs])
    config: dict[str, str] = {}
    for each in configs:
        if each.value is None:
            raise DecodeError(f"{each.name} has no value")
        config[each.name] = each.value
    return lambda _: config


class _Increments:
    """Single keys set, removed, or lists changed, over what is there."""

    def __init__(
        self,
        changes: Sequence[IncrementalAlterConfigsRequestConfig],
        keys: Mapping[str, Key],
        fallback: Fallback,
    ) -> None:
        _require_distinct([each.name for each in changes])
        self._changes = changes
        self._keys = keys
        self._fallback = fallback

    def __call__(self, current: Mapping[str, str]) -> dict[str, str]:
        config = dict(current)
        for change in self._changes:
            self._apply(change, config)
        return config

    def _apply(self, change: IncrementalAlterConfigsRequestConfig, config: dict[str, str]) -> None:
        name, value = change.name, change.value
        key = self._keys.get(name)
        if key is None:
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
                words = self._words(key, config)
                added = [each for each in _split(value) if each not in words]
                config[name] = format_value((*words, *added))
            case _Change.SUBTRACT:
                gone = _split(value)
                kept = [each for each in self._words(key, config) if each not in gone]
                config[name] = format_value(tuple(kept))
            case unknown:
                raise DecodeError(f"{name}: operation {unknown} is not known")

    def _words(self, key: Key, config: Mapping[str, str]) -> list[str]:
        if key.kind is not Kind.LIST:
            raise InvalidConfig(f"{key.name} is not a list, nothing can be added to or taken from")
        text = config[key.name] if key.name in config else self._fallback(key.name)
        return _split(text)


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _require_distinct(names: list[str]) -> None:
    if len(names) > CONFIG_KEYS_PER_REQUEST_MAX:
        raise DecodeError(f"{len(names)} keys in one resource")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DecodeError(f"{repeated[0]!r} is in the request more than once")


# ---- where it goes


class _Altering:
    """All resources of one request, each on its own."""

    def __init__(
        self,
        call: Call,
        resources: Sequence[_AnyResource],
        validate_only: bool,
        altered: Callable[[int, Mapping[str, Key], Fallback], Alter],
        gathering: Gathering[DragomanError | None],
    ) -> None:
        self._call = call
        self._validate_only = validate_only
        self._altered = altered
        named = Counter((each.resource_type, each.resource_name) for each in resources)
        for index, each in enumerate(resources):

            def done(error: DragomanError | None, index: int = index) -> None:
                gathering.set(index, error)

            try:
                if named[each.resource_type, each.resource_name] > 1:
                    raise DecodeError("the resource is in the request more than once")
                self._alter(index, each, done)
            except DragomanError as error:
                done(error)

    def _alter(self, index: int, resource: _AnyResource, done: Done) -> None:
        match resource.resource_type:
            case ResourceType.TOPIC:
                self._alter_topic(index, resource.resource_name, done)
            case ResourceType.BROKER:
                self._alter_node(index, resource.resource_name, done)
            case ResourceType.GROUP:
                raise InvalidConfig("groups have no configuration of their own")
            case ResourceType.CLIENT_METRICS:
                raise InvalidConfig("client metrics are not collected")
            case unknown:
                raise unknown_type(unknown)

    def _alter_topic(self, index: int, name: str, done: Done) -> None:
        call, broker = self._call, self._call.service.broker
        authorize(call, Operation.ALTER_CONFIGS, Resource.TOPIC, name)
        topic_of(call, name)

        def fallback(key: str) -> str:
            return TOPIC_CONFIG[key].default_text(broker.settings)

        alter = self._altered(index, TOPIC_CONFIG, fallback)
        if self._validate_only:
            broker.topics.check_altered(name, alter)
            done(None)
        else:
            broker.topics.alter_config(name, alter, done)

    def _alter_node(self, index: int, name: str, done: Done) -> None:
        call, broker = self._call, self._call.service.broker
        authorize_cluster(call, Operation.ALTER_CONFIGS)
        node_id = node_of(call, name)

        def fallback(key: str) -> str:
            # A node's own changes lie over those for every node.
            return format_value(broker.node_configs.cluster_wide().value(key))

        alter = self._altered(index, NODE_KEYS, fallback)
        if self._validate_only:
            broker.node_configs.check_altered(node_id, alter)
            done(None)
        else:
            broker.node_configs.alter(node_id, alter, done)
