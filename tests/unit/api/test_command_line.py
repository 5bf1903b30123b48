"""The command line against the real API: what one writes the other reads."""

from __future__ import annotations

import asyncio
import io
import json

import pytest

from dragoman.api.errors import ApiError
from dragoman.api.listener import HttpListener
from dragoman.api.values import Election, FewCopies, NewMoves, NewNode, Transfer
from dragoman.cli.main import main
from dragoman.world import SystemClock


@pytest.fixture
async def server(node):
    loop = asyncio.get_running_loop()
    listener = HttpListener(node, SystemClock(), loop)
    server = await loop.create_server(listener.protocol, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await listener.close(grace_seconds=0)


class Ran:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def words(self) -> list[list[str]]:
        return [line.split() for line in self.out.splitlines() if line.strip(" ─━")]


@pytest.fixture
def dragoman(server: str, capsys: pytest.CaptureFixture[str]):
    async def run(*arguments: str) -> Ran:
        status = await asyncio.to_thread(main, [*arguments, "--server", server])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


async def test_topic_is_created_shown_and_deleted(dragoman) -> None:
    created = await dragoman(
        *("topic", "create", "orders", "--partitions", "2"),
        *("--config", "retention.ms=1000", "--config", "flush.ms=1"),
    )
    assert (created.status, created.out) == (0, "")
    assert created.err == "created topic 'orders' with partitions: 2\n"
    listed = await dragoman("topic", "list")
    assert listed.words() == [
        ["NAME", "PARTITIONS", "REPLICAS", "INTERNAL"],
        ["orders", "2", "1", "no"],
    ]
    described = (await dragoman("topic", "describe", "orders")).words()
    assert ["0", "1", "0", "1", "1", "0", "5", "5", "100"] in described
    assert ["retention.ms", "1000", "topic"] in described
    assert ["flush.ms", "1", "topic,", "no", "effect"] in described
    deleted = await dragoman("topic", "delete", "orders")
    assert (deleted.status, deleted.out, deleted.err) == (0, "", "deleted topic 'orders'\n")
    assert (await dragoman("topic", "list")).words()[1:] == []


async def test_json_is_what_programs_read(dragoman, node) -> None:
    created = await dragoman("topic", "create", "t", "--output", "json")
    assert json.loads(created.out)["name"] == "t"
    listed = await dragoman("topic", "list", "--output", "json")
    assert [each["name"] for each in json.loads(listed.out)] == ["t"]
    described = await dragoman("topic", "describe", "t", "--output", "json")
    assert json.loads(described.out) == json.loads(created.out)
    deleted = await dragoman("topic", "delete", "t", "--output", "json")
    assert json.loads(deleted.out) == [{"name": "t"}]
    assert node.topics == {}


async def test_deletion_stops_at_the_first_refusal(dragoman, node) -> None:
    node.add_topic("a")
    node.add_topic("z")
    deleted = await dragoman("topic", "delete", "a", "missing", "z")
    assert (deleted.status, deleted.out) == (1, "")
    assert deleted.err.splitlines()[0] == "deleted topic 'a'"
    assert list(node.topics) == ["z"]


async def test_long_listing_is_followed_to_its_end(dragoman, node) -> None:
    for index in range(2500):
        node.add_topic(f"t{index:04d}")
    listed = json.loads((await dragoman("topic", "list", "--output", "json")).out)
    assert [each["name"] for each in listed] == sorted(node.topics)


async def test_awkward_names_arrive_whole(dragoman, node) -> None:
    for name in ("a/b", "%RETRY%g", "a b", "ä", "?x#y"):
        assert (await dragoman("topic", "create", name)).status == 0
        assert (await dragoman("topic", "describe", name)).status == 0
    assert "a/b" in node.topics


async def test_refusal_is_one_line_and_status_1(dragoman) -> None:
    missing = await dragoman("topic", "describe", "nope")
    assert (missing.status, missing.out) == (1, "")
    assert missing.err == "dragoman: there is no topic 'nope' (unknown_topic)\n"
    bad = await dragoman("topic", "create", "t", "--config", "retention.msec=1")
    assert bad.status == 1
    assert "did you mean 'retention.ms'?" in bad.err
    many = await dragoman("topic", "create", "t", "--partitions", "0")
    assert (many.status, many.err.count("\n")) == (1, 1)


async def test_groups_are_listed_and_described(dragoman, node) -> None:
    node.add_group("readers")
    assert (await dragoman("group", "list")).words() == [
        ["GROUP", "PROTOCOL", "STATE", "MEMBERS"],
        ["readers", "kafka", "stable", "1"],
    ]
    described = (await dragoman("group", "describe", "readers")).words()
    assert ["m-1", "c", "127.0.0.1", "orders:0,1"] in described
    assert ["orders", "0", "2", "5", "3"] in described
    assert ["gone", "0", "9", "-", "-"] in described
    as_json = await dragoman("group", "describe", "readers", "--output", "json")
    assert json.loads(as_json.out)["generation"] == 3
    listed = await dragoman("group", "list", "--output", "json")
    assert json.loads(listed.out)[0]["group"] == "readers"


async def test_cluster_status_is_shown(dragoman) -> None:
    shown = (await dragoman("cluster", "status")).words()
    assert ["durability", "fsync"] in shown
    assert ["uptime", "1.5", "s"] in shown
    assert ["1", "kafka", "127.0.0.1:9092", "-"] in shown
    assert ["1", "yes", "leader", "-", "0", "0", "2"] in shown
    assert ["feature", "level", "2"] in shown
    as_json = json.loads((await dragoman("cluster", "status", "--output", "json")).out)
    assert as_json["cluster_id"] == "c1"


async def test_events_of_mlog_are_printed_as_they_are(dragoman) -> None:
    printed = await dragoman("cluster", "mlog-events")
    assert printed.out == '{"event_type":1,"data":{"topic":"a\\u003cb"}}\n'


async def test_topics_with_few_copies_are_named_with_what_mends_it(dragoman, node) -> None:
    node.copies, node.few_copies = 3, (FewCopies(topic="t", copies=1),)
    shown = await dragoman("cluster", "status")
    assert ["t", "1", "3"] in shown.words()
    assert "dragoman cluster reassign --topic TOPIC --nodes 1 --factor 3" in shown.err


async def test_replicas_of_a_dead_node_are_moved_before_it_is_forgotten(dragoman, node) -> None:
    node.waiting_replicas = 2
    assert (await dragoman("cluster", "remove", "4")).status == 0
    assert node.asked == [4, NewMoves(drain=4, shrink=True), 4]
    node.asked.clear()
    node.waiting_replicas = 2
    assert (await dragoman("cluster", "remove", "4", "--keep-replicas")).status == 0
    assert node.asked == [4]


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["add", "4@h:9190"], NewNode(node_id=4, address="h:9190")),
        (["remove", "4"], 4),
        (["transfer", "--metadata"], Transfer(metadata_to=-1)),
        (["transfer", "--to", "2", "--leaders-of", "1"], Transfer(metadata_to=2, relieve=1)),
        (["reassign", "--nodes", "1,2", "--factor", "2"], NewMoves(nodes=(1, 2), factor=2)),
        (["reassign", "--from", "3", "--throttle", "9"], NewMoves(drain=3, throttle=9)),
        (["reassign", "--topic", "t", "--cancel"], NewMoves(topic="t", cancel=True)),
        (["elect", "--topic", "t"], Election(topic="t")),
        (
            ["unclean-elect", "a-b-0", "2", "--yes"],
            Election(topic="a-b", partition=0, unclean_node=2),
        ),
    ],
)
async def test_operators_ask_for_what_the_api_takes(dragoman, node, arguments, asked) -> None:
    ran = await dragoman("cluster", *arguments)
    assert (ran.status, ran.out) == (0, "")
    assert node.asked == [asked]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["add", "h:9190"], "expected NODE@HOST:PORT"),
        (["transfer"], "say what to hand over"),
        (["reassign", "--nodes", "a"], "expected numbers such as 1,2,3"),
        (["unclean-elect", "t", "1"], "expected TOPIC-PARTITION"),
    ],
)
async def test_mistakes_of_operators_are_told(dragoman, node, arguments, text) -> None:
    ran = await dragoman("cluster", *arguments)
    assert ran.status == 2
    assert text in ran.err
    assert node.asked == []


async def test_an_unclean_election_is_confirmed(
    dragoman, node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    ran = await dragoman("cluster", "unclean-elect", "t-0", "2")
    assert (ran.status, node.asked) == (1, [])
    assert "lost for good" in ran.err
    monkeypatch.setattr("sys.stdin", io.StringIO("t-0\n"))
    assert (await dragoman("cluster", "unclean-elect", "t-0", "2")).status == 0
    assert node.asked == [Election(topic="t", partition=0, unclean_node=2)]


async def test_a_refusal_is_told_in_its_own_words(dragoman, node) -> None:
    node.failure = ApiError(409, "refused", "node 2 holds 1 replica")
    ran = await dragoman("cluster", "remove", "2")
    assert (ran.status, ran.err) == (1, "dragoman: node 2 holds 1 replica (refused)\n")


async def test_node_that_is_not_ready_says_so(dragoman, node) -> None:
    node.ready = False
    answer = await dragoman("topic", "list")
    assert (answer.status, answer.out) == (1, "")
    assert "(not_ready)" in answer.err


async def test_hostile_name_does_not_reach_the_terminal(dragoman, node) -> None:
    node.add_topic("x\x1b[2J\n[red]y")
    listed = await dragoman("topic", "list")
    assert "\x1b" not in listed.out
    assert "x\\x1b[2J\\n[red]y" in listed.out
