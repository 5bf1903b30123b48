"""Goal: the directory of a broker that was killed is read without the broker: nothing that is wrong
is returned, and what is missing is said.

Method: `dragoman serve` under the load of `nodes.kill_rounds`, killed at moments that have nothing
to do with what it is doing. Every value proves by itself what was sent, the ledger knows at which
offset it was acknowledged, and the broker, started again, says what stands at every offset.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import ConfigError
from dragoman.spark.logs import IncompleteError
from nodes.kill_rounds import (
    PARTITIONS,
    PLAIN_CLIENTS,
    TOPIC,
    Ledger,
    PlainClient,
    one_round,
    value_of,
)
from nodes.process import ServedNode, serve
from protocols.kafka_socket import KafkaSocket
from tables.source_readers import make_topic, options_for, read, write

ROUNDS = 3


def _stated_ends(text: str) -> dict[int, int]:
    """Where the warning says that each partition's missing records begin."""
    found = re.findall(rf"{TOPIC}-(\d+) from offset (\d+) on", text)
    return {int(partition): int(end) for partition, end in found}


def _judge(rows: list[dict[str, Any]], ends: dict[int, int], ledger: Ledger) -> None:
    """Each offset below the stated ends once, in order, with what was sent and acknowledged."""
    for partition in range(PARTITIONS):
        mine = [row for row in rows if row["partition"] == partition]
        assert [row["offset"] for row in mine] == list(range(ends.get(partition, 0)))
        for row in mine:
            name, number = row["value"].split(b":", 2)[:2]
            assert row["value"] == value_of(name.decode(), int(number))
            sent = (name.decode(), int(number))
            assert ledger.at[partition].get(row["offset"], sent) == sent
            assert int(number) % PARTITIONS == partition


def _first_life(data: Path, durability: str, client: PlainClient) -> None:
    """Ended cleanly, so that the lives after it find something stable."""
    with serve(data, "--durability", durability) as node:
        with KafkaSocket(node.bootstrap_servers) as connection:
            connection.create_topic(TOPIC, PARTITIONS, segment_bytes="20000")
            for _ in range(100):
                client.send(connection)
        assert node.stop() == 0


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_killed_under_load_gives_what_was_sent_and_names_what_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, durability: str
) -> None:
    rng = random.Random(7)
    ledger = Ledger()
    clients = [PlainClient(f"plain{index}", ledger) for index in range(PLAIN_CLIENTS)]
    _first_life(tmp_path, durability, clients[0])
    node = serve(tmp_path, "--durability", durability)
    directory = options_for(path=str(tmp_path), subscribe=TOPIC, includeHeaders="true")
    rows: list[dict[str, Any]] = []
    try:
        for _ in range(ROUNDS):
            one_round(node, node.bootstrap_servers, clients, ledger, rng)
            caplog.clear()
            rows = read(directory)
            assert "was not stopped cleanly" in caplog.text
            assert rows
            _judge(rows, _stated_ends(caplog.text), ledger)
            with pytest.raises(IncompleteError, match=f"the read leaves out {TOPIC}-"):
                read({**directory, "onIncomplete": "fail"})
            node = serve(tmp_path, "--durability", durability)
            _compare_with_broker(node, rows)
        assert node.stop() == 0
    finally:
        node.kill()
    # After a clean stop nothing is missing, and every acknowledged record is there.
    caplog.clear()
    everything = read({**directory, "onIncomplete": "fail"})
    assert caplog.text == ""
    assert len(everything) >= max(ledger.count, len(rows))


def _compare_with_broker(node: ServedNode, rows: list[dict[str, Any]]) -> None:
    """Every column of every row is what the broker serves at that offset."""
    served = read(options_for(node, subscribe=TOPIC, readMode="broker", includeHeaders="true"))
    by_place = {(row["partition"], row["offset"]): row for row in served}
    for row in rows:
        assert by_place[row["partition"], row["offset"]] == row


def test_partitions_of_which_nothing_is_stable_are_said_to_be_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(tmp_path) as first:
        make_topic(first, "orders", partitions=2)
        write(first, range(0, 400, 2), partitions=2)
        assert first.stop() == 0
    with serve(tmp_path) as second:
        make_topic(second, "young")
        write(second, range(1, 40, 2), partitions=2)
        write(second, range(10), "young")
        second.kill()
    assert len(read(options_for(path=str(tmp_path)))) == 200
    assert "orders-0 from offset 200 on" in caplog.text
    assert "partitions without a stable segment" in caplog.text
    with pytest.raises(
        ConfigError,
        match=r"there is no topic 'young' in the stable segments; .* not stopped cleanly",
    ):
        read(options_for(path=str(tmp_path), subscribe="young"))
