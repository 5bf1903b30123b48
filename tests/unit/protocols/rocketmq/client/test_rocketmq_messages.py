"""Messages, filters and settings of the client."""

from __future__ import annotations

import zlib

import cramjam
import pytest

from dragoman.errors import ConfigError, DecodeError
from dragoman.limits import ROCKETMQ_CLIENT_INFLATED_BYTES_MAX
from dragoman.protocols.rocketmq.client.messages import ReceivedMessage, deflate, inflate, received
from dragoman.protocols.rocketmq.client.pull import SQL92, Filter
from dragoman.protocols.rocketmq.client.remoting import (
    ClientSettings,
    parse_addresses,
    vip_address,
)
from dragoman.protocols.rocketmq.constants import Property
from dragoman.protocols.rocketmq.messages import Message, encode_message


@pytest.mark.parametrize(
    ("sys_flag", "compress"),
    [
        (0x001, zlib.compress),
        (0x301, zlib.compress),
        (0x101, lambda body: bytes(cramjam.lz4.compress(body))),
        (0x201, lambda body: bytes(cramjam.zstd.compress(body))),
    ],
)
def test_bodies_are_inflated(sys_flag: int, compress: object) -> None:
    body = b"hello " * 1000
    packed = compress(body)  # type: ignore[operator]
    assert inflate(packed, sys_flag) == body
    assert inflate(packed, sys_flag & ~1) == packed
    for bad in (packed[:-5], b"rubbish", b""):
        with pytest.raises(DecodeError):
            inflate(bad, sys_flag)
    with pytest.raises(DecodeError):
        inflate(compress(bytes(ROCKETMQ_CLIENT_INFLATED_BYTES_MAX + 1)), sys_flag)  # type: ignore[operator]


def test_a_body_at_the_bound_is_inflated() -> None:
    body = bytes(ROCKETMQ_CLIENT_INFLATED_BYTES_MAX)
    assert inflate(deflate(body), 1) == body
    with pytest.raises(DecodeError):
        inflate(b"x", 0x701)


def test_received_messages_are_inflated_and_have_their_topic_back() -> None:
    stored = Message(
        topic="%RETRY%g",
        body=deflate(b"x" * 100),
        sys_flag=1,
        properties={Property.RETRY_TOPIC: "T", Property.KEYS: "a b", Property.UNIQUE_KEY: "U"},
    )
    broken = Message(topic="T", body=b"rubbish", sys_flag=1)
    first, second = received(encode_message(stored) + encode_message(broken))
    assert (first.topic, first.body, first.sys_flag) == ("T", b"x" * 100, 0)
    assert (first.keys, first.unique_id, first.tags) == (["a", "b"], "U", "")
    assert (second.body, second.sys_flag, second.unique_id) == (b"rubbish", 1, second.message_id)


def test_filters_keep_exact_tags() -> None:
    messages = [
        ReceivedMessage(topic="T", properties={"TAGS": tag} if tag else {})
        for tag in ("a", "b", "")
    ]
    assert [each.tags for each in Filter(" a || c||").kept(messages)] == ["a"]
    assert len(Filter().kept(messages)) == len(Filter("").kept(messages)) == 3
    assert len(Filter("a IS NOT NULL", SQL92).kept(messages)) == 3
    data = Filter("TagB||TagA").subscription("T", 5)
    assert (data.tags_set, data.code_set) == (["TagA", "TagB"], [2598919, 2598920])
    assert (data.sub_string, data.sub_version, data.expression_type) == ("TagB||TagA", 5, "TAG")
    assert Filter("").subscription("T", 5).sub_string == "*"


def test_addresses_and_settings_are_checked() -> None:
    assert parse_addresses(("a:1;b:2, a:1", "[::1]:3")) == ("a:1", "b:2", "[::1]:3")
    assert vip_address("h:10911") == "h:10909"
    for bad in ("", "host", "host:", "host:0", "host:70000", ":1"):
        with pytest.raises(ConfigError):
            parse_addresses((bad,))
    with pytest.raises(ConfigError):
        ClientSettings(request_timeout_s=0)
    with pytest.raises(ConfigError):
        ClientSettings(access_key="a")
