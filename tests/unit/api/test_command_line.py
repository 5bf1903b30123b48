"""The command line against the real API: what one writes the other reads."""

from __future__ import annotations

import asyncio
import io
import json

import pytest

from dragoman.api.declaration import ApiError
from dragoman.api.listener import HttpListener
from dragoman.api.values import (
    CaptureCheck,
    CaptureCommand,
    Election,
    FewCopies,
    NewMoves,
    NewNode,
    NewSettings,
    Transfer,
)
from dragoman.captures.control import Finding, Status, TableProgress
from dragoman.captures.definition import Definition
from dragoman.cli.main import main
from dragoman.operating_system import SystemClock


@pytest.fixture
async def server(node):
    loop = asyncio.get_running_loop()
    listener = HttpListener(lambda: node, SystemClock(), loop)
    server = await loop.create_server(listener.factory(), "127.0.0.1", 0)
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
    deleted = await dragoman("topic", "delete", "orders", "--yes")
    assert (deleted.status, deleted.out, deleted.err) == (0, "", "deleted topic 'orders'\n")
    assert (await dragoman("topic", "list")).words()[1:] == []


async def test_json_is_what_programs_read(dragoman, node) -> None:
    created = await dragoman("topic", "create", "t", "--output", "json")
    assert json.loads(created.out)["name"] == "t"
    listed = await dragoman("topic", "list", "--output", "json")
    assert [each["name"] for each in json.loads(listed.out)] == ["t"]
    described = await dragoman("topic", "describe", "t", "--output", "json")
    assert json.loads(described.out) == json.loads(created.out)
    deleted = await dragoman("topic", "delete", "t", "-y", "--output", "json")
    assert json.loads(deleted.out) == [{"name": "t"}]
    assert node.topics == {}


async def test_deletion_stops_at_the_first_refusal(dragoman, node) -> None:
    node.add_topic("a")
    node.add_topic("z")
    deleted = await dragoman("topic", "delete", "a", "missing", "z", "--yes")
    assert (deleted.status, deleted.out) == (1, "")
    assert deleted.err.splitlines()[0] == "deleted topic 'a'"
    assert list(node.topics) == ["z"]


async def test_deletion_needs_yes_without_a_terminal(dragoman, node) -> None:
    node.add_topic("a")
    refused = await dragoman("topic", "delete", "a")
    assert (refused.status, refused.out) == (2, "")
    assert refused.err == "dragoman: topic delete needs --yes, since stdin is not a terminal\n"
    assert list(node.topics) == ["a"]


@pytest.mark.parametrize(
    ("answer", "is_yes"), [("y", True), ("YES", True), ("n", False), ("", False)]
)
async def test_deletion_asks_on_a_terminal(
    dragoman, node, monkeypatch: pytest.MonkeyPatch, answer: str, is_yes: bool
) -> None:
    node.add_topic("a")
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n" if answer else ""))
    ran = await dragoman("topic", "delete", "a")
    assert ran.err.startswith("topic 'a': partitions: 1, records: 5 (100 bytes)")
    assert "Delete for good? [y/N] " in ran.err
    assert (ran.status, list(node.topics)) == ((0, []) if is_yes else (1, ["a"]))
    assert ("nothing was changed" in ran.err) is not is_yes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_dry_run_shows_what_a_deletion_loses(dragoman, node) -> None:
    node.add_topic("orders")
    node.add_group("readers")
    shown = await dragoman("topic", "delete", "orders", "--dry-run")
    assert shown.words() == [
        ["NAME", "PARTITIONS", "RECORDS", "BYTES", "GROUPS"],
        ["orders", "1", "5", "100", "readers"],
    ]
    found = await dragoman("topic", "delete", "orders", "--dry-run", "--output=json")
    (loss,) = json.loads(found.out)
    assert (loss["name"], loss["groups"]) == ("orders", ["readers"])
    node.topics.unreachable = (2, 3)
    partly = await dragoman("topic", "delete", "orders", "--dry-run")
    assert partly.err == (
        "warning: topic 'orders': not counted is what these nodes have, which do not answer: 2, 3\n"
    )
    missing = await dragoman("topic", "delete", "orders", "missing", "--dry-run")
    assert (missing.status, missing.out) == (1, "")
    assert list(node.topics) == ["orders"]


async def test_long_listing_is_followed_to_its_end(dragoman, node) -> None:
    for index in range(2500):
        node.add_topic(f"t{index:04d}")
    listed = json.loads((await dragoman("topic", "list", "--output", "json")).out)
    assert [each["name"] for each in listed] == sorted(node.topics)


async def test_awkward_names_arrive_whole(dragoman, node) -> None:
    for name in ("a/b", "%RETRY%g", "a b", "ä", "?x#y"):
        assert (await dragoman("topic", "create", name, "--any-name")).status == 0
        assert (await dragoman("topic", "describe", name)).status == 0
    assert "a/b" in node.topics


async def test_topic_that_kafka_clients_cannot_name_is_created_only_if_meant(dragoman) -> None:
    refused = await dragoman("topic", "create", "a/b")
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "Kafka clients cannot use a topic named 'a/b'" in refused.err
    assert "--any-name" in refused.err
    created = await dragoman("topic", "create", "a/b", "--any-name")
    assert created.status == 0
    assert created.err.splitlines()[1:] == [
        "warning: kafka, cursus cannot express this name, so their clients do not see the topic"
    ]
    described = (await dragoman("topic", "describe", "a/b")).words()
    assert ["hidden", "from", "kafka,", "cursus"] in described
    plain = await dragoman("topic", "create", "ab")
    assert "warning" not in plain.err
    assert "hidden" not in (await dragoman("topic", "describe", "ab")).out


async def test_refusal_is_one_line_and_status_1(dragoman) -> None:
    missing = await dragoman("topic", "describe", "nope")
    assert (missing.status, missing.out) == (1, "")
    assert missing.err == "dragoman: there is no topic 'nope' (unknown_topic)\n"
    bad = await dragoman("topic", "create", "t", "--config", "retention.msec=1")
    assert bad.status == 1
    assert "did you mean 'retention.ms'?" in bad.err
    many = await dragoman("cluster", "add", "9999999999@h:1")
    assert many.status == 1
    assert many.err == "dragoman: node_id: Expected `int` <= 999999999 (invalid_request)\n"


async def test_groups_are_listed_and_described(dragoman, node) -> None:
    node.add_group("readers")
    assert (await dragoman("group", "list")).words() == [
        ["GROUP", "PROTOCOL", "STATE", "MEMBERS"],
        ["readers", "kafka", "stable", "1"],
    ]
    node.groups.unreadable.add("readers")
    lag = await dragoman("group", "list", "--lag")
    assert (lag.status, lag.words()[1][4:]) == (0, ["-", "-", "-"])
    node.groups.unreadable.clear()
    described = (await dragoman("group", "describe", "readers")).words()
    assert ["m-1", "c", "127.0.0.1", "orders:0,1"] in described
    assert ["orders", "0", "2", "5", "3", "-"] in described
    assert ["gone", "0", "9", "-", "-", "-"] in described
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


async def test_moves_that_take_several_requests_are_asked_for_until_all_have_begun(
    dragoman, node
) -> None:
    node.slices = 3
    ran = await dragoman("cluster", "reassign", "--nodes", "1,2", "--throttle", "9")
    assert (ran.status, ran.err) == (0, "partitions moved: 3\n")
    repeated = NewMoves(nodes=(1, 2))
    assert node.asked == [NewMoves(nodes=(1, 2), throttle=9), repeated, repeated]
    node.asked.clear()
    node.slices = node.waiting_replicas = 2
    assert (await dragoman("cluster", "remove", "4")).status == 0
    drain = NewMoves(drain=4, shrink=True)
    assert node.asked == [4, drain, drain, 4]


async def test_elections_that_take_several_requests_are_asked_for_until_all_are_over(
    dragoman, node
) -> None:
    node.slices = 3
    ran = await dragoman("cluster", "elect")
    assert (ran.status, ran.err) == (0, "preferred leaders elected: 3\n")
    assert node.asked == [Election()] * 3


async def test_settings_of_running_nodes_are_set_and_unset(dragoman, node) -> None:
    ran = await dragoman("config", "set", "num.partitions = 3", "super.users=a=b", "--node", "2")
    assert ran.status == 0
    values = {"num.partitions": "3", "super.users": "a=b"}
    assert (await dragoman("config", "unset", "num.partitions", "tls")).status == 0
    assert node.asked == [
        NewSettings(node_id=2, values=values),
        NewSettings(unset=("num.partitions", "tls")),
    ]


@pytest.mark.parametrize("arguments", [["set"], ["set", "tls"], ["set", "=on"], ["unset"]])
async def test_settings_without_a_key_or_value_are_wrong_usage(dragoman, node, arguments) -> None:
    assert (await dragoman("config", *arguments)).status == 2
    assert node.asked == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["reassign", "--nodes", "1"],
            "2 moves were started before and continue: repeat the command",
        ),
        (["elect"], "2 leaders were elected before: repeat the command for the rest"),
    ],
)
async def test_a_command_that_is_interrupted_says_how_far_it_came(
    dragoman, node, arguments, text
) -> None:
    node.slices, node.fails_after = 5, 2
    ran = await dragoman("cluster", *arguments)
    assert ran.status == 1
    assert text in ran.err


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
        (["transfer"], "nothing to transfer"),
        (["reassign", "--nodes", "a"], "expected numbers such as 1,2,3"),
        (["unclean-elect", "t", "1"], "expected TOPIC-PARTITION"),
    ],
)
async def test_mistakes_of_operators_are_reported(dragoman, node, arguments, text) -> None:
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


async def test_refusal_is_printed_with_its_own_text_and_code(dragoman, node) -> None:
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


# ---- captures

ADD = ("cdc", "add", "shop", "--dsn", "host=db password=hunter2", "--tables", "a,public.b")


async def test_capture_is_added_with_every_option(dragoman, node) -> None:
    ran = await dragoman(
        *ADD,
        *("--tables", "c", "--channels", "news", "--envelope", "flat", "--key", "a=x,y"),
        *("--topic", "a=all.{table}", "--mask", "a.card=hash", "--exclude", "b.note"),
        *("--snapshot", "never", "--no-tombstones", "--wal-limit", "1000", "--heartbeat", "0"),
    )
    assert (ran.status, ran.out) == (0, "")
    assert ran.err == "added capture shop\ncapture shop is streaming\n"
    definition = Definition(
        name="shop",
        dsn="host=db password=hunter2",
        tables=("a", "public.b", "c"),
        channels=("news",),
        envelope="flat",
        keys={"a": ("x", "y")},
        topics={"a": "all.{table}"},
        mask={"a.card": "hash"},
        exclude=("b.note",),
        snapshot="never",
        tombstones=False,
        wal_limit_bytes=1000,
        heartbeat_s=0,
    )
    assert node.asked == [CaptureCheck(definition=definition), definition]


async def test_nothing_is_added_when_the_database_is_not_fit(dragoman, node) -> None:
    node.findings = (
        Finding("ok", "connected"),
        Finding("warning", "table b has no key"),
        Finding("problem", "wal_level is replica", "ALTER SYSTEM SET wal_level = logical"),
    )
    ran = await dragoman(*ADD)
    assert (ran.status, node.captures) == (1, {})
    assert ran.err == (
        "warning: table b has no key\n"
        "problem: wal_level is replica\n"
        "    ALTER SYSTEM SET wal_level = logical\n"
        "dragoman: nothing was added; see above for problems: 1\n"
    )
    assert (await dragoman(*ADD, "--no-check", "--detach")).status == 0
    assert "shop" in node.captures


async def test_the_address_may_come_from_elsewhere(dragoman, node, monkeypatch) -> None:
    rest = ("--tables", "t", "--no-check")
    monkeypatch.setenv("DRAGOMAN_CDC_DSN", "host=environment")
    assert (await dragoman("cdc", "add", "one", *rest)).status == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("host=stdin\n"))
    assert (await dragoman("cdc", "add", "two", "--dsn", "-", *rest)).status == 0
    assert [each.dsn for each in node.asked] == ["host=environment", "host=stdin"]


async def test_failed_capture_is_reported(dragoman, node, monkeypatch) -> None:
    node.capture_status = Status(state="failed", problem="the slot is gone")
    ran = await dragoman(*ADD)
    assert ran.status == 1
    assert ran.err.endswith("capture shop was added, but has failed: the slot is gone\n")
    monkeypatch.setattr("dragoman.cli.cdc_display._PATIENCE_S", 0)
    node.capture_status = Status(state="waiting", problem="no route")
    ran = await dragoman(*ADD)
    assert "capture shop was added, but is waiting: no route; it is retried" in ran.err


async def test_captures_are_listed_and_shown(dragoman, node) -> None:
    progress = TableProgress(
        table="public.a", rows=5, rows_expected=10, bytes=2048, seconds_left=90
    )
    node.capture_status = Status(
        state="snapshotting",
        lsn="0/16B3748",
        lag_bytes=5 << 20,
        lag_s=1.25,
        tables=(progress, TableProgress(table="public.b", is_done=True)),
        warnings=("table b has no key",),
    )
    await dragoman(*ADD, "--detach")
    listed = (await dragoman("cdc", "list")).words()
    assert listed[1][:5] == ["shop", "snapshotting", "1", "a,public.b", "-"]
    states = (await dragoman("cdc", "status")).words()
    assert states[1] == ["shop", "snapshotting", "1", "3", "0", "5.0", "MiB", "1.2", "s", "-", "-"]
    one = await dragoman("cdc", "status", "shop")
    assert one.err == "warning: table b has no key\n"
    assert ["captured", "up", "to", "0/16B3748"] in one.words()
    assert ["public.a", "some", "5", "10", "2.0", "KiB", "0:01:30"] in one.words()
    assert ["public.b", "all", "0", "-", "0", "B", "-"] in one.words()
    shown = await dragoman("cdc", "status", "shop", "--output", "json")
    assert json.loads(shown.out)["status"]["lsn"] == "0/16B3748"
    everything = await dragoman("cdc", "status", "--output", "json")
    assert json.loads(everything.out) == [json.loads(shown.out)]
    missing = await dragoman("cdc", "status", "nobody")
    assert (missing.status, missing.err) == (
        1,
        "dragoman: there is no capture 'nobody' (unknown_capture)\n",
    )


async def test_cdc_commands_reach_the_node(dragoman, node) -> None:
    for arguments in (
        ("pause", "shop"),
        ("resume", "shop"),
        ("rewind", "shop", "--to", "0/16B3748"),
        ("snapshot", "shop", "--tables", "a,b"),
        ("remove", "shop"),
        ("remove", "shop", "--keep-slot"),
    ):
        ran = await dragoman("cdc", *arguments)
        assert (ran.status, ran.err) == (0, "done\n")
    assert node.asked == [
        ("shop", CaptureCommand(command="pause")),
        ("shop", CaptureCommand(command="resume")),
        ("shop", CaptureCommand(command="rewind", lsn="0/16B3748")),
        ("shop", CaptureCommand(command="snapshot", tables=("a", "b"))),
        ("shop", False),
        ("shop", True),
    ]
    wrong = await dragoman("cdc", "rewind", "shop", "--to", "yesterday")
    assert wrong.status == 1
    assert "lsn" in wrong.err


async def test_the_doctor_is_asked_by_name_or_by_options(dragoman, node) -> None:
    ran = await dragoman("cdc", "doctor", "shop")
    assert (ran.status, ran.err) == (0, "ok: connected\n")
    node.findings = (Finding("problem", "no route", "start it"),)
    ran = await dragoman("cdc", "doctor", "--dsn", "host=db", "--tables", "t", "--output", "json")
    assert ran.status == 1
    assert json.loads(ran.out)["items"][0]["remedy"] == "start it"
    by_name, by_options = node.asked
    assert by_name == CaptureCheck(name="shop")
    assert by_options.definition.dsn == "host=db"
