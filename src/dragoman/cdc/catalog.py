"""Lookups for the stream: topics in the broker; keys, types and defaults in the database."""

from __future__ import annotations

import psycopg

from dragoman.captures.definition import Definition
from dragoman.cdc.events import Encoder, TopicNeeded
from dragoman.cdc.source.connection import Connection, refusal
from dragoman.limits import BATCH_HEADER_BYTES, CAPTURE_RECORD_BYTES_MAX
from dragoman.protocols.kafka.client.client import KafkaClient
from dragoman.protocols.kafka.client.errors import TopicExistsError, UnknownTopicError
from dragoman.protocols.kafka.client.values import NewTopic, ResourceType
from dragoman.protocols.postgres.messages import Identity, Relation
from dragoman.protocols.postgres.types import TYPES_QUERY

_PRIMARY_KEY = b"""
SELECT attname FROM pg_index
 CROSS JOIN unnest(indkey::int2[]) WITH ORDINALITY u(number, place)
 JOIN pg_attribute ON attrelid = indrelid AND attnum = number
 WHERE indrelid = %s AND indisprimary AND place <= indnkeyatts
 ORDER BY place
"""

#: Columns that existing rows may have received without an UPDATE: columns added with a default, and
#: identity columns.
_FILLED_COLUMNS = b"""
SELECT attname::text FROM pg_attribute
 WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
 AND (atthasmissing OR atthasdef OR attidentity <> '')
"""


class SourceCatalog:
    def __init__(
        self,
        client: KafkaClient,
        connection: Connection,
        definition: Definition,
        encoder: Encoder,
        batch_bytes: dict[str, int],
    ) -> None:
        """`batch_bytes` receives the largest batch size that each existing topic accepts."""
        self._batch_bytes = batch_bytes
        self._client = client
        self._connection = connection
        self._definition = definition
        self._encoder = encoder

    async def need(self, topic: TopicNeeded) -> None:
        """Create a topic unless it exists, and set the number of its partitions in the encoder."""
        try:
            found = await self._client.topic(topic.topic)
        except UnknownTopicError:
            # A row may be large, and a record is never split.
            wanted = NewTopic(
                name=topic.topic,
                partitions=topic.partitions,
                config={"max.message.bytes": str(CAPTURE_RECORD_BYTES_MAX)},
            )
            try:
                found = await self._client.create_topic(wanted)
            except TopicExistsError:
                found = await self._client.topic(topic.topic)
        else:
            for entry in await self._client.describe_configs(ResourceType.TOPIC, topic.topic):
                if entry.name == "max.message.bytes" and entry.value is not None:
                    self._batch_bytes[topic.topic] = int(entry.value) - BATCH_HEADER_BYTES
        self._encoder.partitions[topic.topic] = len(found.partitions)

    async def describe(self, relation: Relation) -> tuple[str, ...]:
        """Return the columns of the table's primary key if the replica identity is FULL. Looks up
        types that the encoder does not know.
        """
        try:
            if self._encoder.unknown_types(relation):
                await self.learn_types()
            key: tuple[str, ...] = ()
            if relation.identity is Identity.FULL:
                cursor = await self._connection.execute(_PRIMARY_KEY, (relation.id,))
                key = tuple(name for (name,) in await cursor.fetchall())
            if added := self._encoder.new_columns(relation, key):
                await self._look_for_defaults(relation, added)
            return key
        except psycopg.Error as error:
            raise refusal(error, self._definition.dsn) from None

    async def _look_for_defaults(self, relation: Relation, added: tuple[str, ...]) -> None:
        cursor = await self._connection.execute(_FILLED_COLUMNS, (relation.id,))
        filled = {name for (name,) in await cursor.fetchall()}
        if found := [name for name in added if name in filled]:
            self._encoder.filled_by_default(relation, found)

    async def learn_types(self) -> None:
        cursor = await self._connection.execute(TYPES_QUERY.encode())
        self._encoder.learn_types(await cursor.fetchall())
