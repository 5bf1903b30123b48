"""RocketMQ's durable state apart from topics and offsets: a global table, the same on all nodes.

The table has the name server's key/value configuration, group configurations, topics that groups
may not read, and brokers without write permission. Keys in the internal topic are JSON arrays that
begin with the kind of entry.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from dragoman.broker.errors import Overloaded
from dragoman.broker.global_table import GlobalTables
from dragoman.limits import ROCKETMQ_STATE_ENTRIES_MAX, ROCKETMQ_STATE_VALUE_BYTES_MAX
from dragoman.log.batch import Record
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import SubscriptionGroupConfig
from dragoman.protocols.rocketmq.constants import Response
from dragoman.protocols.rocketmq.handlers.refusals import Refused

Key = TypeVar("Key")
STATE_TOPIC: Final = "__rocketmq_state"
_KV: Final = "kv"
_GROUP: Final = "group"
_FORBIDDEN: Final = "forbidden"
_WIPED: Final = "wiped"
_decode_key: Final = msgspec.json.Decoder(list[str]).decode
_decode_text: Final = msgspec.json.Decoder(str).decode


class State:
    def __init__(self, tables: GlobalTables) -> None:
        self._topic = tables.open(STATE_TOPIC, self._apply, self._forget)
        #: By namespace and key.
        self.kv: dict[tuple[str, str], str] = {}
        self.groups: dict[str, SubscriptionGroupConfig] = {}
        #: Pairs of a group and a topic that it may not read.
        self.forbidden: set[tuple[str, str]] = set()
        #: Names of brokers whose write permission is wiped.
        self.wiped: set[str] = set()

    @property
    def is_loaded(self) -> bool:
        return self._topic.is_loaded

    async def loaded(self) -> None:
        """Return when the state has been loaded."""
        await self._topic.loaded()

    def _forget(self) -> None:
        self.kv.clear()
        self.groups.clear()
        self.forbidden.clear()
        self.wiped.clear()

    def _apply(self, record: Record) -> None:
        assert record.key is not None
        kind, *name = _decode_key(record.key)
        value = record.value
        match kind, name:
            case "kv", [namespace, key]:
                self.kv.pop((namespace, key), None)
                if value is not None:
                    self.kv[namespace, key] = _decode_text(value)
            case "group", [group]:
                self.groups.pop(group, None)
                if value is not None:
                    self.groups[group] = bodies.decode(value, SubscriptionGroupConfig)
            case "forbidden", [group, topic]:
                _mark(self.forbidden, (group, topic), value)
            case "wiped", [broker]:
                _mark(self.wiped, broker, value)
            case _:
                # A later release wrote the entry.
                return

    @property
    def _count(self) -> int:
        return len(self.kv) + len(self.groups) + len(self.forbidden) + len(self.wiped)

    # ---- changes, which return when durable and in effect

    async def put_kv(self, namespace: str, key: str, value: str | None) -> None:
        is_new = value is not None and (namespace, key) not in self.kv
        await self._put([_KV, namespace, key], value, is_new=is_new)

    async def put_group(self, name: str, config: SubscriptionGroupConfig | None) -> None:
        is_new = config is not None and name not in self.groups
        await self._put([_GROUP, name], config, is_new=is_new)

    async def put_forbidden(self, group: str, topic: str, is_forbidden: bool) -> None:
        is_new = is_forbidden and (group, topic) not in self.forbidden
        await self._put([_FORBIDDEN, group, topic], is_forbidden or None, is_new=is_new)

    async def put_wiped(self, broker: str, is_wiped: bool) -> None:
        is_new = is_wiped and broker not in self.wiped
        await self._put([_WIPED, broker], is_wiped or None, is_new=is_new)

    async def _put(
        self, key: list[str], value: SubscriptionGroupConfig | str | bool | None, *, is_new: bool
    ) -> None:
        """Raises `Refused`, `Overloaded`."""
        if is_new and self._count >= ROCKETMQ_STATE_ENTRIES_MAX:
            raise Overloaded(f"there are {self._count} entries of configuration already")
        encoded = None if value is None else msgspec.json.encode(value)
        encoded_key = msgspec.json.encode(key)
        if len(encoded_key) + len(encoded or b"") > ROCKETMQ_STATE_VALUE_BYTES_MAX:
            text = f"an entry of configuration has at most {ROCKETMQ_STATE_VALUE_BYTES_MAX} bytes"
            raise Refused(Response.INVALID_PARAMETER, text)
        await self._topic.put(encoded_key, encoded)


def _mark(marked: set[Key], key: Key, value: bytes | None) -> None:
    if value is None:
        marked.discard(key)
    else:
        marked.add(key)
