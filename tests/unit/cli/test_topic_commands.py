"""Goal: `topic alter`, `partitions`, `truncate` and `delete` change what they say, after a question
or `--yes`; a dry run, a bad argument and a refusal change nothing.

Method: commands in this process against a broker in memory, whose state Kafka's client reads back.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest

from dragoman.client.kafka import EARLIEST as EARLIEST_OFFSET
from dragoman.client.kafka import BlockingKafkaClient, NewRecord, NewTopic, TopicPartition
from dragoman.testing import EphemeralBroker
from unit.cli.conftest import Command


@pytest.fixture
def client(broker: EphemeralBroker) -> Iterator[BlockingKafkaClient]:
    """Topic `t` has two partitions with ten records each, whose times are their offsets."""
    with BlockingKafkaClient(broker.bootstrap_servers) as opened:
        opened.create_topic(NewTopic(name="t", partitions=2))
        for partition in (0, 1):
            records = [NewRecord(value=b"v", partition=partition, timestamp=n) for n in range(10)]
            opened.produce_records("t", records)
        yield opened


def starts(client: BlockingKafkaClient) -> list[int]:
    wanted = {TopicPartition("t", each): EARLIEST_OFFSET for each in (0, 1)}
    return [each.offset for _, each in sorted(client.list_offsets(wanted).items())]


def topics(command: Command) -> list[str]:
    return [each["name"] for each in json.loads(command("topic", "list", "--output=json").out)]


# ---- alter


def test_alter_shows_old_and_new_values_with_their_origin(
    command: Command, client: BlockingKafkaClient
) -> None:
    change = ("--set", "retention.ms=5000", "--set", "segment.bytes=9999")
    dry = command("topic", "alter", "t", *change, "--dry-run")
    rows = [
        ["CONFIG", "VALUE", "SOURCE", "NEW", "VALUE", "NEW", "SOURCE"],
        ["retention.ms", "604800000", "default", "5000", "topic"],
        ["segment.bytes", "1073741824", "default", "9999", "topic"],
    ]
    assert (dry.status, dry.words(), dry.err) == (0, rows, "nothing was changed\n")
    done = command("topic", "alter", "t", *change)
    assert (done.status, done.words(), done.err) == (0, rows, "")
    back = command("topic", "alter", "t", "--unset", "retention.ms", "--output", "json")
    assert json.loads(back.out) == [
        {
            "topic": "t",
            "name": "retention.ms",
            "value": "5000",
            "source": "topic",
            "new_value": "604800000",
            "new_source": "default",
        }
    ]
    as_csv = command("topic", "alter", "t", "--unset", "segment.bytes", "--output", "csv")
    (row,) = csv.DictReader(io.StringIO(as_csv.out))
    assert (row["value"], row["new_source"]) == ("9999", "default")


def test_configuration_without_effect_is_said_to_have_none(
    command: Command, client: BlockingKafkaClient
) -> None:
    ran = command("topic", "alter", "t", "--set", "flush.ms=7")
    assert (ran.status, ran.err) == (0, "warning: flush.ms has no effect\n")


# ---- partitions


def test_partitions_are_added_after_a_word_about_keys(
    command: Command, client: BlockingKafkaClient
) -> None:
    dry = command("topic", "partitions", "t", "5", "--dry-run")
    assert dry.words()[1] == ["t", "2", "5"]
    assert "are not in order with the existing ones" in dry.err
    no = command("topic", "partitions", "t", "5", answer="n")
    assert (no.status, "nothing was changed" in no.err) == (1, True)
    assert client.topic("t").partitions.keys() == {0, 1}
    yes = command("topic", "partitions", "t", "5", answer="y")
    assert (yes.status, yes.out) == (0, "")
    assert "gets 3 partitions, 5 in all" in yes.err
    as_json = command("topic", "partitions", "t", "6", "--yes", "--output", "json")
    assert json.loads(as_json.out)["total"] == 6


# ---- truncate


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (["7"], [7, 7]),
        (["latest"], [10, 10]),
        (["-2"], [8, 8]),
        (["+3", "-p", "1"], [0, 3]),
        (["@4"], [4, 4]),
        (["@-1h"], [10, 10]),
        (["1970-01-01"], [0, 0]),
    ],
)
def test_truncation_deletes_what_it_has_shown(
    command: Command, client: BlockingKafkaClient, place: list[str], expected: list[int]
) -> None:
    dry = command("topic", "truncate", "t", "--before", *place, "--dry-run", "--output", "json")
    shown = json.loads(dry.out)
    assert sum(each["records"] for each in shown) == sum(expected)
    assert starts(client) == [0, 0]
    done = command("topic", "truncate", "t", "--before", *place, "--yes")
    message = f"deleted at most {sum(expected)} records of topic 't'\n"
    assert (done.status, done.out, done.err) == (0, "", message)
    assert starts(client) == expected


def test_truncation_asks_with_the_number_of_records(
    command: Command, client: BlockingKafkaClient
) -> None:
    no = command("topic", "truncate", "t", "--before", "3", answer="")
    assert no.status == 1
    assert "topic 't', partition 1: from offset 0 to 3, records: 3\n" in no.err
    assert "Delete at most 6 records for good? [y/N]" in no.err
    assert starts(client) == [0, 0]
    assert command("topic", "truncate", "t", "--before", "3", answer="yes").status == 0
    assert starts(client) == [3, 3]


# ---- delete


def test_patterns_name_topics(command: Command, client: BlockingKafkaClient) -> None:
    for name in ("test-1", "test-2", "prod"):
        command("topic", "create", name)
    dry = command("topic", "delete", "test-?", "t", "--dry-run")
    assert [row[:3] for row in dry.words()[1:]] == [
        ["test-1", "1", "0"],
        ["test-2", "1", "0"],
        ["t", "2", "20"],
    ]
    command("topic", "create", "test-*", "--any-name")
    # A name that exists is no pattern.
    assert command("topic", "delete", "test-*", "--yes").err == "deleted topic 'test-*'\n"
    assert command("topic", "delete", "test-*", "--yes").status == 0
    assert topics(command) == ["prod", "t"]
    assert command("topic", "delete", "*", "-y").status == 0
    assert topics(command) == []


# ---- what is refused

BAD = [
    (["alter", "t"], 2, "nothing to change: give --set KEY=VALUE or --unset KEY"),
    (["alter", "t", "--set", "retention.ms"], 2, "--set: expected KEY=VALUE"),
    (["alter", "t", "--set", "=1"], 2, "--set: expected KEY=VALUE"),
    (["alter", "t", "--set", "a=1", "--set", "a=2"], 2, "a is given twice"),
    (["alter", "t", "--set", "retention.msec=1"], 1, "did you mean 'retention.ms'?"),
    (["alter", "t", "--unset", "retention.msec"], 1, "did you mean 'retention.ms'?"),
    (["alter", "t", "--set", "retention.ms=soon"], 1, "retention.ms"),
    (["alter", "t", "--set", "retention.ms=1", "--unset", "retention.ms"], 1, "set and unset"),
    (["alter", "t", "--set", "partitions=3"], 2, "`dragoman topic partitions` adds"),
    (["alter", "t", "--set", "replication.factor=3"], 2, "`dragoman cluster reassign` moves"),
    (["partitions", "t", "2", "-y"], 1, "topic 't' has 2 partitions"),
    (["partitions", "t", "1", "-y"], 1, "topic 't' has 2 partitions"),
    (["partitions", "t", "0", "-y"], 2, "0"),
    (["partitions", "t", "many", "-y"], 2, "many"),
    (["partitions", "t", "3"], 2, "topic partitions needs --yes"),
    (["partitions", "__consumer_offsets", "9", "-y"], 1, "unknown_topic"),
    (["truncate", "t", "-y"], 2, "--before"),
    (["truncate", "t", "--before", "soon", "-y"], 2, "--before: expected beginning"),
    (["truncate", "t", "--before", "shift:1", "-y"], 2, "--before: expected beginning"),
    (["truncate", "t", "--before", "1", "-p", "2", "-y"], 1, "there is no partition 2"),
    (["truncate", "t", "--before", "1", "-p", "-1", "-y"], 1, "partitions"),
    (["truncate", "t", "--before", "1"], 2, "topic truncate needs --yes"),
    (["delete", "-y"], 2, "NAMES: expected the name of at least one topic"),
    (["delete", "", "-y"], 2, "NAMES: expected the name of at least one topic"),
    (["delete", "x-*", "-y"], 1, "no topic matches 'x-*'"),
    (["delete", "t"], 2, "topic delete needs --yes"),
]
#: Every verb, on a topic that does not exist.
VERBS = [
    ["describe", "nope"],
    ["alter", "nope", "--set", "retention.ms=1"],
    ["partitions", "nope", "3", "--yes"],
    ["truncate", "nope", "--before", "1", "--yes"],
    ["delete", "nope", "--yes"],
    ["delete", "nope", "--dry-run"],
]


@pytest.mark.parametrize(("arguments", "status", "words"), BAD, ids=str)
def test_bad_argument_is_refused_in_one_line(
    command: Command,
    client: BlockingKafkaClient,
    arguments: list[str],
    status: int,
    words: str,
) -> None:
    ran = command("topic", *arguments)
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1)
    assert words in ran.err
    assert starts(client) == [0, 0]
    assert client.topic("t").partitions.keys() == {0, 1}


@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_unknown_topic_and_dead_server_are_said(command: Command, arguments: list[str]) -> None:
    unknown = command("topic", *arguments)
    assert (unknown.status, unknown.out) == (1, "")
    assert unknown.err == "dragoman: there is no topic 'nope' (unknown_topic)\n"
    dead = command("topic", *arguments, server="http://127.0.0.1:1")
    assert (dead.status, dead.out) == (1, "")
    assert dead.err.startswith("dragoman: cannot reach http://127.0.0.1:1: ")


@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_caller_without_the_right_learns_which_command_gives_it(
    locked: list[str], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    from dragoman.cli.main import main

    assert main(["topic", *arguments, *locked]) == 1
    ran = capsys.readouterr()
    assert ran.out == ""
    assert "not_authorized" in ran.err
    assert "`dragoman acl add`" in ran.err
