"""Goal: `group reset`, `delete`, `list` and `describe` do what they say, for groups of all
protocols; a dry run, a bad argument and a refusal change nothing.

Method: commands in this process against a broker in memory. Group `g` has committed offset 6 of ten
records in partition 0 of `t`, whose times are their offsets, and none in partition 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.cli.main import main
from dragoman.client.kafka import BlockingKafkaClient, NewRecord, NewTopic, TopicPartition
from dragoman.testing import EphemeralBroker
from unit.cli.conftest import Command

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def client(broker: EphemeralBroker) -> Iterator[BlockingKafkaClient]:
    with BlockingKafkaClient(broker.bootstrap_servers) as opened:
        opened.create_topic(NewTopic(name="t", partitions=2))
        records = [NewRecord(value=b"v", partition=0, timestamp=n) for n in range(10)]
        opened.produce_records("t", records)
        opened.commit_offsets("g", {FIRST: 6})
        yield opened


def committed(client: BlockingKafkaClient, group: str = "g") -> dict[TopicPartition, int]:
    return {where: each.offset for where, each in client.committed_offsets(group).items()}


# ---- reset


def test_reset_shows_the_difference_and_makes_it(
    command: Command, client: BlockingKafkaClient
) -> None:
    dry = command("group", "reset", "g", "--topic", "t", "--to", "-1", "--dry-run")
    rows = [
        ["TOPIC", "PARTITION", "COMMITTED", "NEW", "SKIPPED", "READ", "AGAIN"],
        ["t", "0", "6", "9", "3", "0"],
        ["t", "1", "-", "0", "-", "-"],
    ]
    assert (dry.words(), dry.err) == (rows, "would move 2 offsets of group 'g'\n")
    assert committed(client) == {FIRST: 6}
    no = command("group", "reset", "g", "--to", "earliest", answer="n")
    assert no.status == 1
    assert "topic 't', partition 0: from 6 to 0, records read again: 6\n" in no.err
    assert committed(client) == {FIRST: 6}
    done = command("group", "reset", "g", "--topic", "t", "--to", "-1", answer="y")
    assert (done.status, done.words()) == (0, rows)
    assert done.err.endswith("moved 2 offsets of group 'g'\n")
    assert committed(client) == {FIRST: 9, SECOND: 0}


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        ("shift:-2", 4),
        ("shift:100", 10),
        ("@3", 3),
        ("7", 7),
        ("+2", 2),
        ("-4", 6),
        ("earliest", 0),
        ("latest", 10),
        ("@-15m", 10),
        ("@2026-11-19T10:00", 10),
        ("1970-01-01", 0),
    ],
)
def test_place_is_an_offset_of_each_partition(
    command: Command, client: BlockingKafkaClient, place: str, offset: int
) -> None:
    ran = command("group", "reset", "g", "--to", place, "--yes", "--output", "json")
    assert (ran.status, ran.err) == (0, "")
    (moved,) = json.loads(ran.out)
    assert moved == {
        "topic": "t",
        "partition": 0,
        "committed_offset": 6,
        "offset": offset,
        "records": offset - 6,
    }
    assert committed(client) == {FIRST: offset}


@pytest.mark.parametrize(
    ("topics", "moved"),
    [
        (["t"], {0, 1}),
        (["t:1"], {1}),
        (["t:0,1"], {0, 1}),
        (["t:0", "t:1"], {0, 1}),
        (["t", "t:1"], {0, 1}),
        (["t:1", "t"], {0, 1}),
        ([], {0}),
    ],
)
def test_topics_may_have_chosen_partitions(
    command: Command, client: BlockingKafkaClient, topics: list[str], moved: set[int]
) -> None:
    options = [option for each in topics for option in ("--topic", each)]
    ran = command("group", "reset", "g", "--to", "latest", *options, "-y", "--output", "json")
    assert {each["partition"] for each in json.loads(ran.out)} == moved


def test_new_group_gets_offsets_before_its_first_member(
    command: Command, client: BlockingKafkaClient
) -> None:
    ran = command("group", "reset", "new", "--topic", "t:0", "--to", "4", "--yes")
    assert (ran.status, committed(client, "new")) == (0, {FIRST: 4})


# ---- reset to a file


@pytest.mark.parametrize("form", ["csv", "json"])
@pytest.mark.parametrize("printed_by", ["describe", "reset"])
def test_printed_offsets_are_restored_from_a_file(
    command: Command, client: BlockingKafkaClient, tmp_path: Path, form: str, printed_by: str
) -> None:
    client.commit_offsets("g", {SECOND: 0})
    saved = tmp_path / "offsets"
    if printed_by == "describe":
        printed = command("group", "describe", "g", "--output", form)
    else:
        printed = command("group", "reset", "g", "--to", "shift:0", "--dry-run", "--output", form)
    saved.write_text(printed.out)
    command("group", "reset", "g", "--to", "latest", "--yes")
    assert committed(client) == {FIRST: 10, SECOND: 0}
    only = command("group", "reset", "g", "--to", f"file:{saved}", "--topic", "t:1", "--yes")
    assert (only.status, committed(client)) == (0, {FIRST: 10, SECOND: 0})
    ran = command("group", "reset", "g", "--to", f"file:{saved}", "--yes")
    assert (ran.status, committed(client)) == (0, {FIRST: 6, SECOND: 0})
    copied = command("group", "reset", "copy", "--to", f"file:{saved}", "--yes")
    assert (copied.status, committed(client, "copy")) == (0, {FIRST: 6, SECOND: 0})


@pytest.mark.parametrize(
    "text",
    [
        "topic,partition,offset\nt,0,3\n",
        "\ufefftopic,partition,offset\r\nt,0,3\r\n",
        "offset,note,partition,topic\n3,x,0,t\n,,1,t\n",
        '[{"topic": "t", "partition": 0, "offset": 3}]',
        ' {"offsets": [{"topic": "t", "partition": 0, "committed_offset": 3, "lag": null}]}',
    ],
)
def test_file_is_csv_or_json(
    command: Command, client: BlockingKafkaClient, tmp_path: Path, text: str
) -> None:
    saved = tmp_path / "offsets"
    saved.write_text(text)
    assert command("group", "reset", "g", "--to", f"file:{saved}", "--yes").status == 0
    assert committed(client) == {FIRST: 3}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "expected CSV with the columns topic, partition and offset"),
        (b"t,0,3\n", "expected CSV with the columns topic, partition and offset"),
        (b"topic,partition,lag\nt,0,3\n", "expected CSV with the columns"),
        (b"topic,partition,offset\n", "has no offsets"),
        (b"topic,partition,offset\nt,0,three\n", "line 2: Expected"),
        (b"topic,partition,offset\nt,0,3\n,1,3\n", "line 3: "),
        (b"topic,partition,offset\nt,0,-3\n", "Expected `int` >= 0"),
        (b"topic,partition,offset\nt,-1,3\n", "Expected `int` >= 0"),
        (b"topic,partition,offset\nt,0,99999999999999999999\n", "Expected"),
        (b'[{"topic": "t", "partition": 0, "offset": "3"}]', "Expected `int | null`"),
        (b'[{"topic": "t"}]', "missing required field `partition`"),
        (b'{"topic": "t"}', "missing required field `offsets`"),
        (b"[", "truncated"),
        (b"\xff\xfe", "is not text"),
        (b'topic,partition,offset\nt,0,"3\n', ""),
    ],
)
def test_file_without_offsets_is_refused(
    command: Command, client: BlockingKafkaClient, tmp_path: Path, content: bytes, words: str
) -> None:
    saved = tmp_path / "offsets"
    saved.write_bytes(content)
    ran = command("group", "reset", "g", "--to", f"file:{saved}", "--yes")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert str(saved) in ran.err
    assert words in ran.err
    assert committed(client) == {FIRST: 6}


# ---- groups of other protocols


@pytest.fixture(scope="module")
def all_protocols() -> Iterator[EphemeralBroker]:
    listeners = ("kafka", "http", "minibroker", "cursus", "mlog", "rocketmq")
    with EphemeralBroker(listeners=listeners) as running:
        yield running


@pytest.mark.parametrize("protocol", ["kafka", "minibroker", "cursus", "mlog", "rocketmq"])
def test_groups_of_every_protocol_are_reset_and_deleted(
    all_protocols: EphemeralBroker,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    protocol: str,
) -> None:
    topic, group = f"of-{protocol}", f"readers-{protocol}"
    over_http = ["--server", all_protocols.http_url]
    clients = ["--protocol", protocol, "--bootstrap", all_protocols.address(protocol)]
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(6)))

    def run(*arguments: str) -> str:
        assert main(list(arguments)) == 0
        return capfd.readouterr().out

    def read(count: int) -> list[str]:
        return run("consume", topic, *clients, "-g", group, "--max", str(count)).split()

    run("topic", "create", topic, "--partitions", "1", *over_http)
    run("produce", topic, *clients, "--file", str(lines))
    assert read(4) == ["0", "1", "2", "3"]
    dry = run("group", "reset", group, "--to", "2", "--dry-run", "--output=json", *over_http)
    assert [each["records"] for each in json.loads(dry)] == [-2]
    run("group", "reset", group, "--to", "2", "--yes", *over_http)
    assert read(4) == ["2", "3", "4", "5"]
    run("group", "delete", group, "--yes", *over_http)
    assert group not in run("group", "list", *over_http)
    assert read(6) == ["0", "1", "2", "3", "4", "5"]


# ---- list and describe


def test_lag_is_shown_in_records_and_seconds(command: Command, client: BlockingKafkaClient) -> None:
    client.commit_offsets("done", {FIRST: 10})
    described = json.loads(command("group", "describe", "g", "--output", "json").out)
    (offset,) = described["offsets"]
    # The oldest record that is not committed has the time 6 ms after 1970 began.
    assert offset["lag_records"] == 4
    assert offset["lag_seconds"] > 1e9
    listed = json.loads(command("group", "list", "--lag", "--output", "json").out)
    assert [(each["group"], each["topics"], each["lag_records"]) for each in listed] == [
        ("done", 1, 0),
        ("g", 1, 4),
    ]
    assert listed[0]["lag_seconds"] == 0
    assert command("group", "list", "--lag").words()[1] == [
        *("done", "-", "Empty", "0", "1", "0", "0.0")
    ]
    assert ["lag", "4"] in command("group", "describe", "g").words()


# ---- delete


def test_groups_are_deleted_after_a_question(command: Command, client: BlockingKafkaClient) -> None:
    client.commit_offsets("g2", {FIRST: 1, SECOND: 0})
    dry = command("group", "delete", "g*", "--dry-run")
    assert dry.words()[1:] == [["g", "1"], ["g2", "2"]]
    assert command("group", "delete", "g", answer="no").status == 1
    assert committed(client) == {FIRST: 6}
    yes = command("group", "delete", "g", answer="y")
    assert yes.err == "group 'g': committed offsets: 1\nDelete for good? [y/N] deleted group 'g'\n"
    as_json = command("group", "delete", "g2", "-y", "--output", "json")
    assert json.loads(as_json.out) == [{"group": "g2", "offsets": 2}]
    assert json.loads(command("group", "list", "--output", "json").out) == []


# ---- what is refused


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["reset", "g", "--to", "x", "-y"], 2, "--to: expected beginning"),
        (["reset", "g", "--to", "shift:", "-y"], 2, "--to: expected a number"),
        (["reset", "g", "--to", "@+5m", "-y"], 2, "--to: expected beginning"),
        (["reset", "g", "-y"], 2, "--to"),
        (["reset", "", "--to", "end", "-y"], 2, "name of a group"),
        (["reset", "g", "--to", "end"], 2, "group reset needs --yes"),
        (["reset", "g", "--to", "end", "--topic", "", "-y"], 2, "name of a topic"),
        (["reset", "g", "--to", "end", "--topic", "no", "-y"], 1, "no topic 'no'"),
        (["reset", "g", "--to", "end", "--topic", "t:0,7", "-y"], 1, "partition 7 of topic 't'"),
        (["reset", "g", "--to", "shift:1", "--topic", "t:1", "-y"], 1, "partition 1 of topic 't'"),
        (["reset", "g", "--to", "file:/nope", "-y"], 2, "cannot read /nope: No such file"),
        (["reset", "g", "--to", "file:", "-y"], 2, "cannot read"),
        (["delete", "-y"], 2, "NAMES: expected the name of at least one group"),
        (["delete", "x*", "-y"], 1, "no group matches 'x*'"),
        (["delete", "g", "nope", "-y"], 1, "there is no group 'nope'"),
        (["delete", "g"], 2, "group delete needs --yes"),
    ],
    ids=str,
)
def test_bad_argument_is_refused_in_one_line(
    command: Command,
    client: BlockingKafkaClient,
    arguments: list[str],
    status: int,
    words: str,
) -> None:
    ran = command("group", *arguments)
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1)
    assert words in ran.err
    assert committed(client) == {FIRST: 6}


VERBS = [
    ["describe", "nope"],
    ["delete", "nope", "--yes"],
    ["delete", "nope", "--dry-run"],
    ["reset", "nope", "--to", "latest", "--yes"],
    ["reset", "nope", "--to", "latest", "--dry-run"],
]


@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_unknown_group_and_dead_server_are_said(command: Command, arguments: list[str]) -> None:
    unknown = command("group", *arguments)
    assert (unknown.status, unknown.out) == (1, "")
    assert unknown.err == "dragoman: there is no group 'nope' (unknown_group)\n"
    dead = command("group", *arguments, server="http://127.0.0.1:1")
    assert (dead.status, dead.out) == (1, "")
    assert dead.err.startswith("dragoman: cannot reach http://127.0.0.1:1: ")


@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_caller_without_the_right_learns_which_command_gives_it(
    locked: list[str], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(["group", *arguments, *locked]) == 1
    ran = capsys.readouterr()
    assert ran.out == ""
    assert "not_authorized" in ran.err
    assert "`dragoman acl add`" in ran.err
