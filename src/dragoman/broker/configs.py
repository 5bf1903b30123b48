"""Settings that operators change while nodes run: checked here, stored as metadata events.

There is one set of changes for all nodes and one for each node, which overrides it, and one for
each group, which takes effect with its members' next heartbeat. A set is stored as a whole; changes
are queued, so that each sees all before it. The sets for nodes may include keys that only Kafka's
clients know (`config/dynamic.py`): stored, and without effect.

Levels of features are stored the same way. The protocols know which features there are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeAlias

from dragoman.broker.changes import Changes
from dragoman.broker.errors import InvalidConfig, Overloaded, ReadOnlyConfig
from dragoman.broker.keyed_lock import KeyedLock
from dragoman.cluster.events import (
    Event,
    FeatureLevelChanged,
    GroupConfigChanged,
    NodeConfigChanged,
)
from dragoman.cluster.metadata import EVERY_NODE, MetadataImage
from dragoman.config.consistency import check_consistent
from dragoman.config.dynamic import (
    UNKNOWN_KEYS_LEVEL,
    ReadOnlyKeyError,
    check_inert,
    describe_inert,
    first_unknown,
    is_inert,
    with_changes,
)
from dragoman.config.keys import Source
from dragoman.config.listeners import split_listener_key
from dragoman.config.overrides import ConfigEntry, check_group_config
from dragoman.config.settings import LISTENER_KEYS, Settings
from dragoman.errors import ClusterError, ConfigError
from dragoman.limits import GROUP_CONFIGS_MAX

log = logging.getLogger("dragoman.broker")

#: Returns the new set of changes for the current one.
Alter: TypeAlias = Callable[[Mapping[str, str]], dict[str, str]]
_NOTHING: Mapping[str, str] = {}


class NodeConfigs:
    def __init__(
        self, image: MetadataImage, changes: Changes, started_with: Settings, node_id: int
    ) -> None:
        self._image = image
        self._changes = changes
        self._started_with = started_with
        self._node_id = node_id
        self._lock = KeyedLock()
        #: The changes in the local log, until this node has joined the cluster.
        self._expected: Mapping[int, Mapping[str, str]] | None = None

    # ---- reading

    def expect(self, local: MetadataImage | None) -> None:
        """Use the changes in this image, that of the local log, from now on; None: those that are
        committed. A node that starts learns what is committed from other nodes, and they may demand
        of connections what it knows from its log only.
        """
        self._expected = None if local is None else dict(local.node_configs)

    def effective(self) -> Settings:
        """This node's settings with the changes over them.

        Changes that contradict the settings of a later start are ignored and logged, so that the
        node still starts. What they demand of listeners holds all the same: a listener that has to
        speak TLS and has no certificate serves no client, rather than everyone.
        """
        for_all, own = self._stored(EVERY_NODE), self._stored(self._node_id)
        try:
            return self._layered(for_all, own)
        except ConfigError as error:
            log.error("settings changed at run time are ignored: %s", error)
        try:
            return self._layers(_of_listeners(for_all), _of_listeners(own))
        except ConfigError:
            return self._started_with

    def cluster_wide(self) -> Settings:
        """`settings` with only the changes for all nodes."""
        try:
            return self._layered(self._stored(EVERY_NODE), {})
        except ConfigError:
            return self._started_with

    def inert_entries(self, node_id: int) -> list[ConfigEntry]:
        """Inert keys that are stored for this node, or for `EVERY_NODE`."""
        layers = [(Source.DYNAMIC_CLUSTER, self._stored(EVERY_NODE))]
        if node_id != EVERY_NODE:
            layers.insert(0, (Source.DYNAMIC_NODE, self._stored(node_id)))
        return describe_inert(layers)

    def _stored(self, node_id: int) -> Mapping[str, str]:
        known = self._image.node_configs if self._expected is None else self._expected
        return known.get(node_id, {})

    def _layered(self, for_all: Mapping[str, str], own: Mapping[str, str]) -> Settings:
        """Raises `ConfigError` for values that are bad, or contradict each other."""
        found = self._layers(for_all, own)
        check_consistent(found)
        return found

    def _layers(self, for_all: Mapping[str, str], own: Mapping[str, str]) -> Settings:
        below = with_changes(self._started_with, Source.DYNAMIC_CLUSTER, _obeyed(for_all))
        return with_changes(below, Source.DYNAMIC_NODE, _obeyed(own))

    # ---- changing

    def check_altered(self, node_id: int, alter: Alter) -> dict[str, str]:
        """The resulting changes for a node, or for `EVERY_NODE`. Raises `BrokerError`."""
        config = alter(self._stored(node_id))
        try:
            if node_id == EVERY_NODE:
                self._layered(config, self._stored(self._node_id))
            else:
                self._layered(self._stored(EVERY_NODE), config)
            check_inert(config)
            self._check_level(config)
        except ReadOnlyKeyError as error:
            raise ReadOnlyConfig(str(error)) from None
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None
        return config

    def _check_level(self, config: Mapping[str, str]) -> None:
        """Raises `ConfigError` for keys because of which an older node would ignore all changes."""
        name = first_unknown(config)
        if name is not None:
            try:
                self._image.require_level(UNKNOWN_KEYS_LEVEL)
            except ClusterError as error:
                raise ConfigError(f"{name}: {error}") from None

    async def alter(self, node_id: int, alter: Alter) -> None:
        """Returns when the change is durable and in effect. `alter` may raise `BrokerError`."""

        def decide() -> list[Event]:
            config = self.check_altered(node_id, alter)
            return [NodeConfigChanged(node_id=node_id, config=config)]

        # One queue for all: changes for all nodes and for one node must be consistent.
        async with self._lock.take(None):
            await self._changes.make(decide)


def _obeyed(changes: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in changes.items() if not is_inert(name)}


def _of_listeners(changes: Mapping[str, str]) -> dict[str, str]:
    """The changes of what listeners demand."""
    found = _obeyed(changes)
    return {
        name: text
        for name, text in found.items()
        if name in LISTENER_KEYS or split_listener_key(name) is not None
    }


class GroupConfigs:
    def __init__(
        self, image: MetadataImage, changes: Changes, settings: Callable[[], Settings]
    ) -> None:
        self._image = image
        self._changes = changes
        self._settings = settings
        self._lock = KeyedLock()

    def of(self, group_id: str) -> Mapping[str, str]:
        """The group's overrides, as text."""
        return self._image.group_configs.get(group_id, _NOTHING)

    def check_altered(self, group_id: str, alter: Alter) -> dict[str, str]:
        """The resulting overrides of the group. Raises `BrokerError`."""
        config = alter(self.of(group_id))
        try:
            check_group_config(self._settings(), config)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None
        known = self._image.group_configs
        if group_id not in known and len(known) >= GROUP_CONFIGS_MAX:
            raise Overloaded(f"{len(known)} groups have configurations")
        return config

    async def alter(self, group_id: str, alter: Alter) -> None:
        """Returns when the change is durable and in effect. `alter` may raise `BrokerError`."""

        def decide() -> list[Event]:
            config = self.check_altered(group_id, alter)
            return [GroupConfigChanged(group_id=group_id, config=config)]

        async with self._lock.take(group_id):
            await self._changes.make(decide)


class Features:
    """The levels that clients see where these differ from the levels of the release."""

    def __init__(self, image: MetadataImage, changes: Changes) -> None:
        self._image = image
        self._changes = changes

    def level(self, feature: str, released: int) -> int:
        return self._image.features.get(feature, released)

    @property
    def version(self) -> int:
        """Grows with each change; clients compare it."""
        return self._changes.version

    async def change(self, levels: Mapping[str, int]) -> None:
        """Change all of these levels or none. Returns when new connections see the new levels."""
        events: list[Event] = [
            FeatureLevelChanged(feature=feature, level=level) for feature, level in levels.items()
        ]
        await self._changes.make(lambda: events)
