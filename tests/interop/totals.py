"""What programs built on a client are asked to do: count records per key, and survive restarts.

They read `{"number": 7}` and write `{"number": 7, "seen": 2}` for the second record of its key.
confluent-kafka writes their input and reads their output.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from client import Record, Row
from confluent_client import ConfluentClient

KEYS = 5
PARTITIONS = 2


class Totals:
    def __init__(self, servers: str, topic: str) -> None:
        self.group, self.source, self.target = f"group-{topic}", f"{topic}-in", f"{topic}-out"
        self._kafka = ConfluentClient(servers)
        self._given = 0
        for each in (self.source, self.target):
            self._kafka.create_topic(each, PARTITIONS)

    def give(self, count: int) -> None:
        records = [
            Record(json.dumps({"number": number}).encode(), b"%d" % (number % KEYS))
            for number in range(self._given, self._given + count)
        ]
        self._given += count
        self._kafka.produce(self.source, records)

    def check(self) -> None:
        """Every record came out once, in order, counted in its key's place."""
        rows = self._kafka.consume(self.target, self._given, committed_only=True)
        for key in range(KEYS):
            numbers = range(key, self._given, KEYS)
            expected = [(number, place) for place, number in enumerate(numbers, start=1)]
            assert _totals(rows, b"%d" % key) == expected, _totals(rows, b"%d" % key)


def _totals(rows: Sequence[Row], key: bytes) -> list[tuple[int, int]]:
    read = [json.loads(row.value or b"") for row in rows if row.key == key]
    return [(each["number"], each["seen"]) for each in read]
