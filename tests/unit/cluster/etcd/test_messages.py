"""Goal: what is said to etcd's gateway is what it understands, and what it says is understood.

Method: answers as etcd 3.5.1 was seen to give them, and requests compared with what it took.
"""

from __future__ import annotations

import pytest

from dragoman.cluster.etcd import messages as m
from dragoman.cluster.etcd.history import check_version
from dragoman.cluster.etcd.layout import Entry, Keys, after, encode_entry, read_entry, read_head
from dragoman.cluster.events import NodeRegistered
from dragoman.errors import ConfigError, FormatError

HEADER = b'"header":{"cluster_id":"157611465","member_id":"164934","revision":"2","raft_term":"2"}'


def test_requests_leave_out_what_has_its_default() -> None:
    request = m.Transaction(
        compare=(m.created(b"/x", 0), m.changed(b"/y", 7)),
        success=(*m.puts(m.Put(key=b"/x", value=b"v", lease=9)), *m.deletes(m.Delete(key=b"/z"))),
        failure=m.ranges(m.Range(key=b"/x", limit=3)),
    )
    assert m.encode(request) == (
        b'{"compare":[{"key":"L3g=","target":"CREATE","create_revision":0},'
        b'{"key":"L3k=","target":"MOD","mod_revision":7}],'
        b'"success":[{"request_put":{"key":"L3g=","value":"dg==","lease":9}},'
        b'{"request_delete_range":{"key":"L3o="}}],'
        b'"failure":[{"request_range":{"key":"L3g=","limit":3}}]}'
    )


def test_transaction_is_read_with_its_ranges() -> None:
    body = (
        b"{" + HEADER + b',"succeeded":true,"responses":[{"response_put":{"header":{}}},'
        b'{"response_range":{"header":{"revision":"2"},"kvs":[{"key":"L3g=","create_revision":"2",'
        b'"mod_revision":"3","version":"1","value":"dg==","lease":"4646766903798287624"}],'
        b'"count":"1"}},{"response_range":{"header":{"revision":"2"}}}]}'
    )
    answer = m.reader(m.TransactionAnswer)(body)
    assert isinstance(answer, m.TransactionAnswer)
    assert (answer.header.revision, answer.succeeded) == (2, True)
    first, second = answer.found()
    assert first.kvs == (m.KeyValue(b"/x", b"v", 2, 3, 4646766903798287624),)
    assert second.kvs == ()


def test_stream_is_read_line_by_line() -> None:
    read = m.stream_reader(m.WatchAnswer)
    created = read(b'{"result":{' + HEADER + b',"created":true}}')
    assert created == m.WatchAnswer(m.Header(2), created=True)
    deleted = read(
        b'{"result":{' + HEADER + b',"events":[{"type":"DELETE","kv":{"key":"L3g=",'
        b'"mod_revision":"4"}},{"kv":{"key":"L3o=","create_revision":"3","mod_revision":"3"}}]}}'
    )
    assert isinstance(deleted, m.WatchAnswer)
    assert [each.type for each in deleted.events] == ["DELETE", "PUT"]
    gone = read(b'{"result":{"header":{},"canceled":true,"compact_revision":"4"}}')
    assert isinstance(gone, m.WatchAnswer)
    assert (gone.canceled, gone.compact_revision) == (True, 4)
    failed = read(b'{"error":{"grpc_code":14,"http_code":503,"message":"no leader"}}')
    assert failed == m.Failure("no leader", 14)
    assert isinstance(read(b"rubbish"), m.Failure)
    assert isinstance(read(b'{"result":7}'), m.Failure)


def test_lease_without_time_is_gone() -> None:
    read = m.stream_reader(m.LeaseAnswer)
    assert read(b'{"result":{' + HEADER + b',"ID":"77","TTL":"5"}}') == m.LeaseAnswer(77, 5)
    assert read(b'{"result":{' + HEADER + b',"ID":"77"}}') == m.LeaseAnswer(77, 0)


@pytest.mark.parametrize(
    ("body", "code", "is_refusal"),
    [
        (b'{"error":"x","code":3,"message":"etcdserver: request is too large"}', 3, True),
        (b'{"error":"x","code":8,"message":"mvcc: database space exceeded"}', 8, True),
        (b'{"error":"x","code":14,"message":"etcdserver: no leader"}', 14, False),
        (b'{"error":"x","code":4,"message":"context deadline exceeded"}', 4, False),
        (b'{"error":"x","code":2,"message":"etcdserver: stopped"}', 2, False),
        (b"<html>502 Bad Gateway</html>", 0, False),
    ],
)
def test_refusals_differ_from_errors_with_unknown_outcome(
    body: bytes, code: int, is_refusal: bool
) -> None:
    failure = m.read_failure(body)
    assert (failure.code, failure.is_refusal) == (code, is_refusal)
    assert failure.message


def test_keys_sort_as_their_numbers_and_stay_under_their_prefix() -> None:
    keys = Keys("/dragoman/")
    assert keys.entry(9) < keys.entry(10) < keys.entry(10**15)
    assert keys.number_of(keys.entry(10**15)) == 10**15
    assert keys.number_of(keys.node(42)) == 42
    assert keys.piece(3, 99) < keys.piece(3, 100) < keys.image(4)
    first, end = keys.watched
    inside = (keys.head, keys.leader, keys.entry(0), keys.entry(10**19), keys.node(5))
    assert all(first <= each < end for each in inside)
    outside = (keys.snapshot, keys.piece(0, 0), Keys("/dragoman2").head, Keys("/a").leader)
    assert not any(first <= each < end for each in outside)
    assert after(b"/log/") == b"/log0"


def test_entries_survive_and_others_are_refused() -> None:
    entry = Entry(7, 1, (NodeRegistered(node_id=1, incarnation=2),))
    assert read_entry(encode_entry(entry)) == entry
    for read in (read_entry, read_head):
        with pytest.raises(FormatError, match="newer release"):
            read(b"rubbish")


@pytest.mark.parametrize("version", ["3.4.23", "3.4.30", "3.5.6", "3.5.17", "3.6.0-rc.1", "4.0.0"])
def test_etcd_that_may_keep_metadata(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize(
    "version", ["2.3.8", "3.3.27", "3.4.0", "3.4.22", "3.5.0", "3.5.1", "3.5.2", "3.5.5", "0.0.0"]
)
def test_etcd_that_may_not(version: str) -> None:
    with pytest.raises(ConfigError, match=r"3\.4\.23, 3\.5\.6 or newer is needed"):
        check_version(version)


@pytest.mark.parametrize("version", ["", "not_decided", "v3", "3.5"])
def test_what_says_no_version_is_no_etcd(version: str) -> None:
    with pytest.raises(ConfigError, match="no etcd answers"):
        check_version(version)
