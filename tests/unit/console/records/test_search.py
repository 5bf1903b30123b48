"""Searches through a console in front of a real broker."""

from __future__ import annotations

import asyncio
import csv
import io

import msgspec
import pytest

from dragoman.client.kafka import (
    KafkaClient,
    NewRecord,
    NewTopic,
    TopicPartition,
    TransactionOptions,
)
from dragoman.log.batch import Record
from dragoman.log.compression import Codec
from worlds.console import Browser, RunningConsole, found, write, write_batch


def _numbered(count: int) -> list[NewRecord]:
    return [
        NewRecord(key=b"k%d" % n, value=b'{"n": %d}' % n, timestamp=1_700_000_000_000 + n)
        for n in range(count)
    ]


async def test_search_finds_what_the_filter_says_in_all_partitions(
    client: KafkaClient, browser: Browser
) -> None:
    await client.create_topic(NewTopic(name="many", partitions=3))
    for partition in range(3):
        await write(client, "many", _numbered(500), partition)
    lines = await browser.search("many", filter="value.n in (7, 499) and partition != 1")
    assert sorted(found(lines)) == [(0, 7), (0, 499), (2, 7), (2, 499)]
    assert lines[0]["ends"] == {"0": 500, "1": 500, "2": 500}
    progress, end = lines[-2:]
    assert (end["reason"], end["continue"]) == ("end", None)
    counted = {each: progress[each] for each in ("scanned", "matched", "unknown", "done", "total")}
    assert counted == {"scanned": 1500, "matched": 4, "unknown": 0, "done": 1500, "total": 1500}
    assert progress["bytes"] > 1500


@pytest.mark.parametrize(
    ("request_", "offsets"),
    [
        ({"from": "-2"}, [8, 9]),
        ({"from": "7"}, [7, 8, 9]),
        ({"from": "+7"}, [7, 8, 9]),
        ({"from": "latest"}, []),
        ({"from": "3", "until": "5"}, [3, 4]),
        ({"from": "1700000000008"}, [8]),
        ({"from": "@1700000000008"}, [8, 9]),
        ({"from": "earliest", "until": "@1700000000002"}, [0, 1]),
        ({"from": "99"}, []),
        ({"from": "5", "until": "2"}, []),
    ],
)
async def test_places(
    client: KafkaClient, browser: Browser, request_: dict[str, str], offsets: list[int]
) -> None:
    name = f"places-{len(offsets)}-{'-'.join(map(str, request_))}-{sum(str(request_).encode())}"
    await client.create_topic(NewTopic(name=name, partitions=1))
    await write(client, name, _numbered(10))
    lines = await browser.search(name, **request_)
    if request_ == {"from": "1700000000008"}:
        # A number alone is an offset.
        offsets = []
    assert [offset for _, offset in found(lines)] == offsets
    assert lines[-1]["type"] == "end"


async def test_search_that_ends_is_continued_without_gap_or_repetition(
    client: KafkaClient, browser: Browser
) -> None:
    await client.create_topic(NewTopic(name="parts", partitions=2))
    for partition in range(2):
        await write(client, "parts", _numbered(700), partition)
    seen: list[tuple[int, int]] = []
    resume, reasons, scanned = None, set(), 0
    for step in range(100):
        budget = {"records": 130} if step % 2 else {"records": 1000, "bytes": 3000}
        lines = await browser.search("parts", limit=100, budget=budget, **{"continue": resume})
        seen += found(lines)
        scanned += lines[-2]["scanned"]
        assert lines[-2]["scanned"] <= budget["records"]
        reasons.add((lines[-1]["reason"], lines[-1]["budget"]))
        resume = lines[-1]["continue"]
        if resume is None:
            break
        # Later records are not of this search.
        await write(client, "parts", _numbered(1), step % 2)
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(700)]
    assert scanned == 1400
    assert ("limit", "") in reasons


async def test_budgets_of_records_and_bytes_end_a_search(
    client: KafkaClient, browser: Browser
) -> None:
    await client.create_topic(NewTopic(name="budgets", partitions=1))
    for _ in range(4):
        await write_batch(client, TopicPartition("budgets", 0), [Record(value=b"x" * 1000)] * 100)
    for budget, part in (({"records": 150}, "records"), ({"bytes": 150_000}, "bytes")):
        lines = await browser.search("budgets", filter='key == "none"', budget=budget)
        assert (lines[-1]["reason"], lines[-1]["budget"]) == ("budget", part)
        assert lines[-1]["continue"]["ends"] == {"0": 400}
    assert lines[-1]["continue"]["positions"] in ({"0": 200}, {"0": 300})
    assert lines[-2]["bytes"] < 350_000
    lines = await browser.search("budgets", filter="false", budget={"seconds": 0.000001})
    assert lines[-1]["budget"] == "seconds"


async def test_aborted_and_control_records_are_not_seen(
    client: KafkaClient, browser: Browser
) -> None:
    await client.create_topic(NewTopic(name="transactions", partitions=1))
    await write(client, "transactions", [NewRecord(value=b"before")])
    producer = client.transactional_producer(TransactionOptions(transactional_id="t"))
    await producer.initialise()
    where = TopicPartition("transactions", 0)
    for value, is_kept in ((b"aborted", False), (b"committed", True)):
        await producer.write_records({where: [Record(value=value)]})
        await (producer.commit() if is_kept else producer.abort())
    await producer.write_records({where: [Record(value=b"open")]})
    lines = await browser.search("transactions")
    texts = [each["value"]["text"] for each in lines if each["type"] == "record"]
    assert texts == ["before", "committed"]
    assert lines[-1]["reason"] == "end"
    status, body = await browser.json("GET", "/records/one?topic=transactions&partition=0&offset=1")
    assert (status, body["code"]) == (404, "record_not_found")
    await producer.abort()


@pytest.mark.parametrize("codec", list(Codec))
async def test_compressed_batches_are_searched(
    client: KafkaClient, browser: Browser, codec: Codec
) -> None:
    name = f"codec-{codec.name.lower()}"
    await client.create_topic(NewTopic(name=name, partitions=1))
    records = [Record(value=b'{"n": %d}' % n) for n in range(1000)]
    await write_batch(client, TopicPartition(name, 0), records, codec)
    assert found(await browser.search(name, filter="value.n == 999")) == [(0, 999)]
    assert found(await browser.search(name, **{"from": "998"})) == [(0, 998), (0, 999)]


async def test_tombstones_empty_values_and_repeated_headers(
    client: KafkaClient, browser: Browser
) -> None:
    await client.create_topic(NewTopic(name="shapes", partitions=1))
    headers = (("h", b"1"), ("h", None), ("", b"\xff"))
    await write(client, "shapes", [
        NewRecord(key=b"k", value=None, headers=headers), NewRecord(key=b"", value=b""),
    ])  # fmt: skip
    first, second = (each for each in await browser.search("shapes") if each["type"] == "record")
    assert first["value"] is None
    assert [each["name"] for each in first["headers"]] == ["h", "h", ""]
    assert first["headers"][1]["value"] is None
    assert first["headers"][2]["value"]["form"] == "hex"
    assert (second["key"]["size"], second["value"]["text"]) == (0, "")
    lines = await browser.search("shapes", filter="value == null")
    assert found(lines) == [(0, 0)]


async def test_unknown_answers_are_counted(client: KafkaClient, browser: Browser) -> None:
    await client.create_topic(NewTopic(name="mixed", partitions=1))
    values = (b'{"n": 1}', b'{"n": "1"}', b"text", b'{"n": 2}')
    await write(client, "mixed", [NewRecord(value=each) for each in values])
    lines = await browser.search("mixed", filter="value.n > 0")
    assert found(lines) == [(0, 0), (0, 3)]
    assert lines[-2]["unknown"] == 2


async def test_removed_records_are_passed_over_and_counted(
    client: KafkaClient, browser: Browser
) -> None:
    await client.create_topic(NewTopic(name="removed", partitions=1))
    await write(client, "removed", _numbered(10))
    resume = {"positions": {"0": 0}, "ends": {"0": 10}}
    await client.delete_records({TopicPartition("removed", 0): 6})
    lines = await browser.search("removed", **{"continue": resume})
    assert [offset for _, offset in found(lines)] == [6, 7, 8, 9]
    assert lines[-2]["skipped"] == 6


async def test_values_by_the_schema_of_the_topic(client: KafkaClient, browser: Browser) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
    config = {"dragoman.value.schema": msgspec.json.encode({"avro": schema}).decode()}
    await client.create_topic(NewTopic(name="typed", partitions=1, config=config))
    await write(client, "typed", [NewRecord(value=b"\x02"), NewRecord(value=b"\x04")])
    lines = await browser.search("typed", filter="value.n == 2")
    (record,) = (each for each in lines if each["type"] == "record")
    assert (record["value"]["form"], record["value"]["text"]) == ("avro", '{"n":2}')
    assert found(await browser.search("typed", filter='value contains "n\\":1"')) == [(0, 0)]
    (refusal,) = await browser.search("typed", decode={"value": "protobuf"})
    assert (refusal["status"], refusal["code"]) == (400, "schema")


async def test_script_in_records_and_names_is_text(client: KafkaClient, browser: Browser) -> None:
    script = "<script>alert(1)</script>"
    await client.create_topic(NewTopic(name="hostile", partitions=1))
    await write(client, "hostile", [
        NewRecord(key=script.encode(), value=script.encode(), headers=((script, script.encode()),))
    ])  # fmt: skip
    async with browser.ask("POST", "/records/search", {"topic": "hostile"}) as answer:
        await answer.body(1 << 20)
        assert answer.header("content-type").startswith("application/x-ndjson")
        assert answer.header("x-content-type-options") == "nosniff"
        assert "script-src 'self'" in answer.header("content-security-policy")
    path = "/records/bytes?topic=hostile&partition=0&offset=0&part=value"
    async with browser.ask("GET", path) as answer:
        assert await answer.body(1000) == script.encode()
        assert answer.header("content-type") == "application/octet-stream"
        assert answer.header("content-disposition").startswith("attachment;")
    refusal = (await browser.search(f"{script}\r\nset-cookie: a=b"))[0]
    assert refusal["status"] >= 400


async def test_lines_of_files(client: KafkaClient, browser: Browser) -> None:
    await client.create_topic(NewTopic(name="file", partitions=1))
    await write(client, "file", [
        NewRecord(key=b"a,\"b\"\n", value=b'{"n": 1}', headers=(("h", b"\xff"),), timestamp=5),
        NewRecord(value=None, timestamp=6),
    ])  # fmt: skip
    texts = {}
    for form in ("jsonl", "csv"):
        lines = await browser.search("file", form=form)
        texts[form] = "".join(each["text"] for each in lines if each["type"] == "lines")
        assert lines[-1]["type"] == "end"
    first, second = map(msgspec.json.decode, texts["jsonl"].splitlines())
    assert first == {
        "topic": "file", "partition": 0, "offset": 0, "timestamp": 5, "key": 'a,"b"\n',
        "value": '{"n": 1}', "headers": [["h", {"base64": "/w=="}]],
    }  # fmt: skip
    assert (second["key"], second["value"]) == (None, None)
    rows = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert (rows[0]["key"], rows[0]["offset"], rows[1]["value"]) == ('a,"b"\n', "0", "")


async def test_one_record_has_all_its_bytes(client: KafkaClient, browser: Browser) -> None:
    await client.create_topic(NewTopic(name="one", partitions=1))
    large = b"x" * 300_000
    await write(client, "one", [NewRecord(value=b"0"), NewRecord(key=b"k", value=large)])
    status, record = await browser.json("GET", "/records/one?topic=one&partition=0&offset=1")
    assert status == 200
    assert (record["value"]["size"], record["value"]["is_cut"]) == (300_000, True)
    assert record["key"]["base64"] == "aw=="
    async with browser.ask("GET", "/records/bytes?topic=one&partition=0&offset=1") as answer:
        assert await answer.body(1 << 20) == large
    for offset in (2, 99):
        path = f"/records/one?topic=one&partition=0&offset={offset}"
        status, body = await browser.json("GET", path)
        assert (status, body["code"]) == (404, "record_not_found")


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        ({"topic": "missing"}, 404, "topic_not_found"),
        ({"filter": "value.x ="}, 400, "filter"),
        ({"from": "yesterday"}, 400, "invalid_request"),
        ({"partitions": [7]}, 400, "invalid_request"),
        ({"limit": 100_000}, 400, "console"),
        ({"limit": 0}, 400, "console"),
        ({"unknown": 1}, 400, "console"),
        ({"decode": {"value": "avro"}}, 400, "schema"),
        ({"continue": {"positions": {"0": 1}, "ends": {}}}, 400, "invalid_request"),
        ({"continue": {"positions": {"x": 1}, "ends": {"x": 1}}}, 400, "invalid_request"),
    ],
)
async def test_refusals(
    client: KafkaClient,
    browser: Browser,
    request_: dict[str, object],
    status: int,
    code: str,
) -> None:
    name = "refusals" + "".join(each for each in str(request_) if each.isalnum())
    await client.create_topic(NewTopic(name=name, partitions=1))
    (refusal,) = await browser.search(**{"topic": name, **request_})  # type: ignore[arg-type]
    assert (refusal["status"], refusal["code"]) == (status, code)


async def test_search_ends_with_the_browser_and_does_not_run_ahead_of_it(
    client: KafkaClient, served: RunningConsole
) -> None:
    await client.create_topic(NewTopic(name="slow", partitions=1))
    where = TopicPartition("slow", 0)
    for _ in range(64):
        await write_batch(client, where, [Record(value=b"x" * 1000)] * 900)
    browser = served.browser()
    request = {"topic": "slow", "form": "jsonl", "limit": 1_000_000}
    async with browser.ask("POST", "/records/search", request) as answer:
        chunks = answer.chunks()
        first = await anext(chunks)
        assert b'"type":"start"' in first
        # The rest waits in the buffers of the connection. Another request is answered meanwhile.
        other = served.browser()
        for _ in range(20):
            status, _ = await other.json("GET", "/session")
            assert status == 200
    for _ in range(1000):
        lines = await other.search("slow", limit=1)
        if lines[0]["type"] == "start":
            break
    reads = [await other.search("slow", limit=1) for _ in range(20)]
    assert all(lines[0]["type"] == "start" for lines in reads)


async def test_searches_of_a_session_are_bounded(
    client: KafkaClient, served: RunningConsole
) -> None:
    await client.create_topic(NewTopic(name="bounded", partitions=1))
    other = served.browser()
    tails = [other.tail("bounded") for _ in range(8)]
    for each in tails:
        events = await each.__aenter__()
        assert (await anext(events))[0] == "start"
    (refusal,) = await other.search("bounded")
    assert (refusal["status"], refusal["code"]) == (503, "overloaded")
    for each in tails:
        await each.__aexit__(None, None, None)
    async with asyncio.timeout(30):
        while (await other.search("bounded"))[0]["type"] == "refusal":
            await asyncio.sleep(0)
