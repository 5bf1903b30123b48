"""`dragoman produce` and `consume` against a broker: what goes in comes out.

Commands run in this process; only what needs a process (signals, pipes) starts one.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.cli import record_files
from dragoman.cli.main import main
from dragoman.client.kafka import (
    BlockingKafkaClient,
    GroupDetails,
    KafkaClient,
    NewRecord,
    NewTopic,
    TopicPartition,
    UnknownGroupError,
)
from dragoman.testing import EphemeralBroker

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"]}


class Ran:
    def __init__(self, status: int, out: bytes, err: str) -> None:
        self.status, self.out, self.err = status, out, err


Run = Callable[..., Ran]


@pytest.fixture
def dragoman(
    broker: EphemeralBroker,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = main([*arguments, "--bootstrap", broker.bootstrap_servers])
        captured = capfdbinary.readouterr()
        return Ran(status, captured.out, captured.err.decode())

    return run


@pytest.fixture
def client(broker: EphemeralBroker):
    with BlockingKafkaClient(broker.bootstrap_servers) as opened:
        yield opened


def numbers(client: BlockingKafkaClient, count: int, partition: int = 0) -> None:
    """Values 0, 1, …, each with its number as its time."""
    client.produce_records(
        "t",
        [NewRecord(value=b"%d" % n, partition=partition, timestamp=n) for n in range(count)],
    )


def lines(*values: int) -> bytes:
    return b"".join(b"%d\n" % value for value in values)


# ---- producing


def test_lines_become_records_and_records_lines(dragoman: Run) -> None:
    ran = dragoman("produce", "t", stdin=b"one\n\ntwo\xff\r\nlast")
    assert (ran.status, ran.out, ran.err) == (0, b"", "produced 4 records to 't'\n")
    read = dragoman("consume", "t")
    assert (read.status, read.out, read.err) == (0, b"one\n\ntwo\xff\r\nlast\n", "")


def test_nothing_in_is_nothing_written(dragoman: Run) -> None:
    assert dragoman("produce", "t").err == "produced 0 records to 't'\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_options_of_produce_reach_the_records(dragoman: Run, codec: str) -> None:
    ran = dragoman(
        *("produce", "t", "-K", ":", "-H", "a=1", "-H", "b", "-p", "0", "-z", codec, "-Z"),
        stdin=b"k:v\nx:\n",
    )
    assert ran.err == "produced 2 records to 't'\n"
    read = dragoman("consume", "t", "-f", r"%p %o %k %K %s %S %h\n")
    assert read.out == b"0 0 k 1 v 1 a=1,b\n0 1 x 1  -1 a=1,b\n"


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acknowledgement_can_be_chosen(dragoman: Run, acks: str) -> None:
    assert dragoman("produce", "t", "--acks", acks, "-k", "key", stdin=b"v\n").status == 0
    follow = dragoman("consume", "t", "--follow", "--max", "1", "-f", "%k=%s")
    assert follow.out == b"key=v"


def test_file_is_read(dragoman: Run, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"a\nb\n")
    assert dragoman("produce", "t", "--file", str(tmp_path / "in")).status == 0
    assert dragoman("consume", "t").out == b"a\nb\n"
    missing = dragoman("produce", "t", "--file", str(tmp_path / "none"))
    assert missing.status == 1
    assert "No such file" in missing.err


def test_json_goes_there_and_back(dragoman: Run, client: BlockingKafkaClient) -> None:
    client.create_topic(NewTopic(name="t", partitions=2))
    given = (
        b'{"key":"k","value":{"base64":"/w=="},"headers":[["h","1"],["h",null]],'
        b'"partition":1,"timestamp":1234}\n'
    )
    assert dragoman("produce", "t", "--json", stdin=given).status == 0
    printed = dragoman("consume", "t", "--json").out
    assert json.loads(printed) == {"topic": "t", "offset": 0, **json.loads(given)}
    assert dragoman("produce", "u", "--json", "-p", "0", stdin=printed).status == 0
    copied = json.loads(dragoman("consume", "u", "--json").out)
    assert copied == {**json.loads(printed), "topic": "u", "partition": 0}


@pytest.mark.parametrize("is_file", [False, True])
def test_values_may_be_json(dragoman: Run, tmp_path: Path, is_file: bool) -> None:
    given = b'{"key": "k", "value": {"id": 1, "tags": ["a b"]}}\n{"value": [1, 2]}\n'
    (tmp_path / "lines").write_bytes(given)
    arguments = ["--file", str(tmp_path / "lines")] if is_file else []
    ran = dragoman("produce", "t", "--json", *arguments, stdin=b"" if is_file else given)
    assert (ran.status, ran.err) == (0, "produced 2 records to 't'\n")
    assert dragoman("consume", "t").out == b'{"id":1,"tags":["a b"]}\n[1,2]\n'


@pytest.mark.parametrize(
    ("arguments", "given", "words"),
    [
        (["--json"], b'{"value": "good"}\nbad\n{"value": "never"}\n', "line 2: not a record"),
        (["-K", ":"], b"k:good\nbad\nk:never\n", "line 2: expected the key separator ':'"),
    ],
)
def test_bad_line_stops_behind_the_good_ones(
    dragoman: Run, arguments: list[str], given: bytes, words: str
) -> None:
    ran = dragoman("produce", "t", *arguments, stdin=given)
    assert (ran.status, ran.out) == (1, b"")
    said, complained = ran.err.splitlines()
    assert said == "produced 1 record to 't'"
    assert words in complained
    assert dragoman("consume", "t").out == b"good\n"


def test_record_that_is_too_large_is_refused(dragoman: Run) -> None:
    ran = dragoman("produce", "t", stdin=b"small\n" + b"x" * 2_000_000 + b"\n")
    assert ran.status == 1
    assert "MESSAGE_TOO_LARGE" in ran.err
    assert "produced 1 record to 't'" in ran.err


# ---- whole files


def test_whole_files_become_records_byte_for_byte(
    dragoman: Run, client: BlockingKafkaClient, tmp_path: Path
) -> None:
    contents = [b"line\nline\r\n\x00\xff", b"", bytes(range(256)) * 100]
    paths = [tmp_path / str(number) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    options = ["-k", "key", "-H", "a=1", "-p", "1", "-z", "zstd"]
    client.create_topic(NewTopic(name="t", partitions=2))
    ran = dragoman("produce", "t", "--record", *map(str, paths), *options)
    assert (ran.status, ran.err) == (0, "produced 3 records to 't'\n")
    ran = dragoman("produce", "t", "--record", str(paths[1]), "--record", str(paths[0]))
    assert (ran.status, ran.err) == (0, "produced 2 records to 't'\n")
    written = [json.loads(line) for line in dragoman("consume", "t", "--json").out.splitlines()]
    keyed = [each for each in written if each["key"] == "key"]
    assert [each["partition"] for each in keyed] == [1, 1, 1]
    assert {json.dumps(each["headers"]) for each in keyed} == {'[["a", "1"]]'}
    sizes = dragoman("consume", "t", "-p", "1", "-f", r"%k%S\n").out.split()
    assert sizes[:3] == [b"key13", b"key0", b"key25600"]
    assert dragoman("consume", "t", "-p", "1", "--max", "1", "-f", "%s").out == contents[0]


def test_file_that_is_too_large_is_refused_before_another_is_sent(
    dragoman: Run, client: BlockingKafkaClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic(NewTopic(name="t"))
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"x")
    large.write_bytes(b"x" * 1_048_589)
    ran = dragoman("produce", "t", "--record", str(small), str(large))
    assert ran.status == 1
    assert f"{large}: record of 1048589 bytes, max.message.bytes of topic 't' is 1048588" in ran.err
    assert "`dragoman topic alter t --set max.message.bytes=N`" in ran.err
    # The broker decides about what is compressed.
    assert dragoman("produce", "z", "--record", str(large), "-z", "zstd").status == 0
    monkeypatch.setattr(record_files, "CLI_LINE_BYTES_MAX", 10)
    ran = dragoman("produce", "t", "--record", str(small), str(large))
    assert (ran.status, ran.err) == (1, f"dragoman: {large}: larger than 10 bytes\n")
    missing = dragoman("produce", "t", "--record", str(small), str(tmp_path / "none"))
    assert (missing.status, missing.err) == (
        1,
        f"dragoman: cannot read {tmp_path}/none: No such file or directory\n",
    )
    assert dragoman("consume", "t").out == b""


def test_several_files_are_read_line_by_line(dragoman: Run, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"1\n2")
    second.write_bytes(b'3\n"\n')
    files = ["--file", str(first), "--file", str(second)]
    assert dragoman("produce", "t", *files).status == 0
    assert dragoman("consume", "t").out == b'1\n2\n3\n"\n'
    bad = dragoman("produce", "u", *files, "--json")
    assert f"dragoman: {first}, line 1: not a record in JSON" in bad.err


# ---- copies


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.builds(
            NewRecord,
            key=st.none() | st.binary(max_size=20),
            value=st.none()
            | st.binary(max_size=50)
            | st.sampled_from([b"{}", b"null", b'"', b"1"]),
            headers=st.lists(
                st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=3
            ).map(tuple),
            partition=st.integers(0, 1),
            timestamp=st.integers(0, 1 << 40),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_copy_by_json_has_the_same_records(
    dragoman: Run, client: BlockingKafkaClient, records: list[NewRecord]
) -> None:
    for name in ("a", "b"):
        client.create_topic(NewTopic(name=name, partitions=2))
    client.produce_records("a", records)
    lines = dragoman("consume", "a", "--output", "json").out
    assert dragoman("produce", "b", "--json", stdin=lines).status == 0
    copied = dragoman("consume", "b", "--output", "json").out
    for name in ("a", "b"):
        client.delete_topic(name)

    def sorted_without_topic(printed: bytes) -> list[object]:
        found = [json.loads(line) for line in printed.splitlines()]
        return sorted(
            ({**each, "topic": ""} for each in found),
            key=lambda each: (each["partition"], each["offset"]),
        )

    assert sorted_without_topic(copied) == sorted_without_topic(lines)
    assert len(copied.splitlines()) == len(records)


# ---- consuming


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ([], range(10)),
        (["--from", "beginning"], range(10)),
        (["--from", "end"], ()),
        (["--from", "7"], (7, 8, 9)),
        (["--from", "-2"], (8, 9)),
        (["--from", "-100"], range(10)),
        (["--from", "99"], ()),
        (["--from", "@4"], range(4, 10)),
        (["--from", "1970-01-01T00:00:00.006Z"], range(6, 10)),
        (["--from", "2020-01-01"], ()),
        (["--until", "3"], (0, 1, 2)),
        (["--until", "-7"], (0, 1, 2)),
        (["--from", "@2", "--until", "@5"], (2, 3, 4)),
        (["--from", "5", "--until", "2"], ()),
        (["--max", "4"], range(4)),
        (["--from", "3", "--max", "2"], (3, 4)),
        (["-F", "-p", "0", "--until", "10"], range(10)),
        (["-F", "-c", "10"], range(10)),
        (["-p", "0"], range(10)),
        (["-p", "1"], ()),
        (["--isolation", "read_uncommitted"], range(10)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_range_is_what_was_asked_for(
    dragoman: Run, client: BlockingKafkaClient, arguments: list[str], values: range
) -> None:
    client.create_topic(NewTopic(name="t", partitions=2))
    numbers(client, 10)
    ran = dragoman("consume", "t", *arguments)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == lines(*values)


def test_all_partitions_are_read_and_places_count_for_each(
    dragoman: Run, client: BlockingKafkaClient
) -> None:
    client.create_topic(NewTopic(name="t", partitions=3))
    for partition in range(3):
        numbers(client, 5, partition)
    out = dragoman("consume", "t", "--from", "-2", "-f", r"%p:%s\n").out
    assert sorted(out.split()) == [b"%d:%d" % (p, n) for p in range(3) for n in (3, 4)]
    chosen = dragoman("consume", "t", "-p", "0", "-p", "2", "-f", r"%p\n").out
    assert set(chosen.split()) == {b"0", b"2"}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["consume", "nope"], 1, "topic 'nope': there is no such topic"),
        (["consume", "t", "-p", "7"], 1, "topic 't' has no partition 7; it has 1"),
        (["consume", "t", "--from", "then"], 2, "--from: expected beginning"),
        (["consume", "t", "--until", "x"], 2, "--until: expected beginning"),
        (["consume", "t", "-F", "--until", "@5"], 2, "--until: with --follow"),
        (["consume", "t", "--max", "0"], 2, "--max: expected at least 1"),
        (["consume", "t", "-f", "%y"], 2, "--format: unknown token '%y'"),
        (["consume", "t", "-f", "%s", "--json"], 2, "--json and --format"),
        (["consume", "t", "--isolation", "none"], 2, "read_committed"),
        (["consume"], 2, "TOPIC"),
        (["consume", "t", "--idle", "0"], 2, "--idle"),
        (["consume", "t", "--idle", "5", "--until", "@5"], 2, "--until: with --follow"),
        (["produce", "t", "--record", "/nope"], 1, "cannot read /nope"),
        (["produce", "t", "--file", __file__, "--file", "/nope"], 1, "cannot read /nope"),
        (["produce", "t", "--record", __file__, "--json"], 2, "--record: a whole file has no"),
        (["produce", "t", "--record", __file__, "--file", __file__], 2, "--record: a whole file"),
        (["produce", "t", "--record", __file__, "-K", ":"], 2, "--record: a whole file has no"),
        (["produce", "t", "--record", __file__, "-Z"], 2, "--record: a whole file has no lines"),
        (["produce", "t", "--json", "-K", ":"], 2, "--json: JSON lines"),
        (["produce", "t", "-K", ""], 2, "--key-separator: expected"),
        (["produce", "t", "-H", "=x"], 2, "--header: expected NAME=VALUE"),
        (["produce", "t", "-p", "-1"], 2, "--partition"),
        (["produce", "t", "-z", "rar"], 2, "zstd"),
        (["produce", "t", "--acks", "2"], 2, "all"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_one_line_on_stderr(
    dragoman: Run,
    client: BlockingKafkaClient,
    arguments: list[str],
    status: int,
    words: str,
) -> None:
    client.create_topic(NewTopic(name="t"))
    ran = dragoman(*arguments, stdin=b"v\n")
    assert (ran.status, ran.out) == (status, b"")
    assert words in ran.err
    assert ran.err.count("\n") == 1


def test_reading_ends_when_no_record_comes(dragoman: Run, client: BlockingKafkaClient) -> None:
    numbers(client, 3)
    shown = ("-g", "g", "-f", "%s %k\\n", "--null", "-")
    ran = dragoman("consume", "t", "--idle", "600", "--max", "3", *shown)
    assert (ran.status, ran.out) == (0, b"0 -\n1 -\n2 -\n")
    ran = dragoman("consume", "t", "--idle", "0.01", *shown)
    assert (ran.status, ran.out) == (0, b"")
    assert client.committed_offsets("g")[TopicPartition("t", 0)].offset == 3


@pytest.mark.parametrize("command", [["produce", "t"], ["consume", "t"]])
def test_unreachable_broker_is_named(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--bootstrap", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == (
        "dragoman: cannot reach 127.0.0.1:1: connection refused; is a node running there?\n"
    )
    assert main([*command, "--bootstrap", "127.0.0.1:port"]) == 2
    assert "--bootstrap: expected HOST:PORT" in capsys.readouterr().err


# ---- groups


def test_group_goes_on_where_it_was(dragoman: Run, client: BlockingKafkaClient) -> None:
    numbers(client, 10)
    where = TopicPartition("t", 0)
    assert dragoman("consume", "t", "-g", "g", "--max", "3").out == lines(0, 1, 2)
    assert client.committed_offsets("g")[where].offset == 3
    assert dragoman("consume", "t", "-g", "g", "--from", "end").out == lines(*range(3, 10))
    assert client.committed_offsets("g")[where].offset == 10
    assert dragoman("consume", "t", "-g", "g").out == b""


def test_group_without_commits_starts_at_the_requested_position(
    dragoman: Run, client: BlockingKafkaClient
) -> None:
    numbers(client, 4)
    assert dragoman("consume", "t", "-g", "g", "--from", "-1").out == lines(3)


def test_live_group_is_refused_before_anything_happens(
    dragoman: Run, client: BlockingKafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(client, 3)
    live = GroupDetails(
        group="g", kind="classic", state="Stable", protocol_type="", assignor="", members=()
    )

    async def describe(_self: KafkaClient, _group: str) -> GroupDetails:
        return live

    monkeypatch.setattr(KafkaClient, "describe_group", describe)
    ran = dragoman("consume", "t", "-g", "g")
    assert (ran.status, ran.out) == (1, b"")
    assert ran.err == "dragoman: group 'g' is Stable with 0 members; stop them first\n"
    assert client.committed_offsets("g") == {}


def test_unknown_group_is_quiet(
    dragoman: Run, client: BlockingKafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(client, 3)

    async def unknown(_self: KafkaClient, group: str) -> GroupDetails:
        raise UnknownGroupError(69, group=group)

    monkeypatch.setattr(KafkaClient, "describe_group", unknown)
    assert dragoman("consume", "t", "-g", "new", "--max", "1").status == 0
    assert client.committed_offsets("new")[TopicPartition("t", 0)].offset == 1


# ---- processes


def start(broker: EphemeralBroker, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-W", "error", "-m", "dragoman.cli.main", *arguments),
            *("--bootstrap", broker.bootstrap_servers),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )


def test_following_prints_and_commits_at_once_and_ends_with_an_interrupt(
    broker: EphemeralBroker, client: BlockingKafkaClient
) -> None:
    numbers(client, 2)
    with start(broker, "consume", "t", "--follow", "--group", "g") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        assert process.stdout.readline() == b"1\n"
        client.produce_records("t", [NewRecord(value=b"new", partition=0)])
        assert process.stdout.readline() == b"new\n"
        while client.committed_offsets("g")[TopicPartition("t", 0)].offset != 3:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert client.committed_offsets("g")[TopicPartition("t", 0)].offset == 3


def test_reader_that_has_seen_enough_ends_consume(
    broker: EphemeralBroker, client: BlockingKafkaClient
) -> None:
    client.produce_records("t", [NewRecord(value=b"x" * 1000) for _ in range(2000)])
    with start(broker, "consume", "t", "--follow") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        client.produce_records("t", [NewRecord(value=b"x" * 1000) for _ in range(2000)])
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_interrupted_produce_writes_what_it_was_given(
    broker: EphemeralBroker, client: BlockingKafkaClient
) -> None:
    client.create_topic(NewTopic(name="t", partitions=1))
    where = TopicPartition("t", 0)
    with start(broker, "produce", "t") as process, client.reader({where: 0}) as reader:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert [record.value for record in reader.next_records()] == [b"one"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"produced 1 record to 't'\n")
