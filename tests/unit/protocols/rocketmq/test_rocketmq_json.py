"""Goal: Java's odd JSON is read, tables by queue are written in both forms, rubbish is refused.

Method: examples from the specification; odd JSON made from random strict JSON must read back as
that; random bytes must give strict JSON or `DecodeError`.
"""

from __future__ import annotations

import json as standard
import random
import re
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DecodeError
from dragoman.limits import ROCKETMQ_JSON_DEPTH_MAX
from dragoman.protocols.rocketmq import json
from dragoman.protocols.rocketmq.bodies import MessageQueue, TopicOffset, TopicStats, keyed

QUEUE = '{"brokerName":"b","queueId":0,"topic":"T"}'


@pytest.mark.parametrize(
    ("odd", "meant"),
    [
        ('{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        ("{-1:{2:[{3:4}]}}", {"-1": {"2": [{"3": 4}]}}),
        ("{a : NaN, b:-Infinity,c:[Infinity,1.5e3]}", {"a": None, "b": None, "c": [None, 1500]}),
        (
            f'{{"offsetTable":{{{QUEUE}:{{"maxOffset":3}}}}}}',
            {"offsetTable": {QUEUE: {"maxOffset": 3}}},
        ),
        (f"{{{QUEUE}:1,{QUEUE.replace('0', '1')}:2}}", {QUEUE: 1, QUEUE.replace("0", "1"): 2}),
        ('{{"a":{"b":[1]},c:"}"}:[]}', {'{"a":{"b":[1]},"c":"}"}': []}),
        (r'{"NaN":"NaN","q\"":"{0:1}","\\":true}', {"NaN": "NaN", 'q"': "{0:1}", "\\": True}),
        ("[]", []),
        (' {"x":null}\n', {"x": None}),
    ],
)
def test_odd_json_becomes_strict(odd: str, meant: Any) -> None:
    assert standard.loads(json.strict(odd.encode())) == meant


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "}",
        '{"a',
        "[}]]",
        f"{{{{{QUEUE}:1}}:2}}",
        '{"a":1',
        "[" * (ROCKETMQ_JSON_DEPTH_MAX + 1),
    ],
)
def test_what_is_not_even_odd_json_is_refused(bad: str) -> None:
    with pytest.raises(DecodeError):
        json.strict(bad.encode())


def test_a_type_that_does_not_fit_is_refused() -> None:
    for bad in (b"[]", b"", b"x", b"\xff", b'{"offsetTable":[]}', b'{"offsetTable":{"a":"b"}}'):
        with pytest.raises(DecodeError, match="TopicStats"):
            json.read(bad, TopicStats)


def test_depth_of_valid_json_does_no_harm() -> None:
    depth = 100_000
    # From Python 3.14 on, the bound is the stack, and what is skipped needs little of it.
    with suppress(DecodeError):
        json.read(b'{"x":' + b"[" * depth + b"]" * depth + b"}", TopicStats)


def test_tables_by_queue_are_written_in_both_forms() -> None:
    queue = MessageQueue(topic='T,"{\\', broker_name="b", queue_id=7)
    stats = TopicStats(offset_table=keyed({queue: TopicOffset(max_offset=3)}))
    as_text, as_object = json.write(stats), json.write(stats, object_keys=True)
    table = standard.loads(as_text)["offsetTable"]
    assert [standard.loads(key) for key in table] == [
        {"topic": 'T,"{\\', "brokerName": "b", "queueId": 7}
    ]
    assert b'"offsetTable":{{"topic":' in as_object
    assert json.read(as_object, TopicStats) == json.read(as_text, TopicStats) == stats


def test_strings_that_look_like_keys_are_left_alone() -> None:
    class Texts(msgspec.Struct):
        values: dict[str, str]
        more: list[str]

    texts = Texts({"a,": '{"queueId":1}', ',"{': ":"}, ['{"queueId":1}', '{"x":2}'])
    assert json.write(texts, object_keys=True) == json.write(texts)


_KEYS = st.text(max_size=4) | st.from_regex(r"\A(0|[1-9][0-9]{0,5})\Z", fullmatch=True)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=20,
)


def _odd(value: Any) -> str:
    """As Java prints it: number keys bare, keys that hold an object as that object."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_odd_key(key)}:{_odd(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_odd, value)) + "]"
    return standard.dumps(value)


def _odd_key(key: str) -> str:
    bare = re.fullmatch("0|[1-9][0-9]*", key) or key.startswith('{"queueId"')
    return key if bare else standard.dumps(key)


@given(_VALUES, st.integers(0, 9))
def test_every_odd_json_reads_as_what_it_was(value: Any, queue: int) -> None:
    value = {f'{{"queueId":{queue}}}': value, "rest": [value]}
    assert standard.loads(json.strict(_odd(value).encode())) == value


def test_random_bytes_are_read_or_refused() -> None:
    alphabet = [b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"0", b"NaN", b" ", b"a", b"\xff"]
    rng = random.Random(17)
    for _ in range(20_000):
        data = b"".join(rng.choices(alphabet, k=rng.randrange(24)))
        try:
            json.read(data, TopicStats)
        except DecodeError:
            continue


def test_keys_that_are_no_text_are_refused() -> None:
    with pytest.raises(DecodeError, match="no text"):
        json.strict(b'{{"topic":"\xff"}:1}')
