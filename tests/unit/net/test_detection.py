"""Goal: the first 20 bytes of a connection identify its protocol, and never a wrong one.

Method: every request vector of the five specifications, cut at every byte; frames of each protocol
with random sizes and names (seeded), cut likewise; bytes of no protocol.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

import pytest

from dragoman.errors import RemoteProtocolError
from dragoman.net.detection import TLS, detect
from dragoman.protocols.cursus.constants import COMMANDS, INTERNAL_COMMANDS
from dragoman.protocols.mlog import codec
from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.constants import Encoding
from dragoman.protocols.rocketmq.codec import Command, encode
from dragoman.protocols.rocketmq.constants import LANGUAGES, Serialization
from protocols.request_vectors import REQUESTS

BYTES_ENOUGH = 20

VECTORS = [(protocol, frame) for protocol, frames in REQUESTS.items() for frame in frames]


def check_every_cut(protocol: str, data: bytes, bytes_enough: int = BYTES_ENOUGH) -> None:
    decided = False
    for end in range(1, len(data) + 1):
        found = detect(data[:end])
        assert found in (None, protocol), f"{data[:end].hex()} of {data[:40].hex()}"
        assert found is not None or not decided, "a decision stays"
        decided = found is not None
        assert decided or end < min(len(data), bytes_enough), f"{data[:end].hex()} is undecided"


# ---- vectors


@pytest.mark.parametrize(("protocol", "frame"), VECTORS)
def test_request_vector_cut_at_every_byte(protocol: str, frame: str) -> None:
    check_every_cut(protocol, bytes.fromhex(frame))


@pytest.mark.parametrize(("protocol", "frame"), VECTORS)
def test_what_follows_the_first_frame_does_not_matter(protocol: str, frame: str) -> None:
    data = bytes.fromhex(frame)
    assert detect(data + data) == protocol


def test_mlog_requests_of_every_kind_in_both_encodings() -> None:
    for request in m.REPLIES:
        for encoding in Encoding:
            for topic in ("", "orders", "a" * 45, "größe", "b" * 200):
                message = request()
                if "topic" in message.__struct_fields__:
                    message = request(topic=topic)  # type: ignore[call-arg]
                check_every_cut("mlog", codec.encode_frame(message, encoding), 22)


@pytest.mark.parametrize("command", sorted({*COMMANDS, *INTERNAL_COMMANDS}))
def test_every_command_of_cursus_is_known(command: str) -> None:
    for text in (command, command.lower(), f"{command} topic=t"):
        for payload in (text.encode(), b"\x00\x00" + text.encode()):
            check_every_cut("cursus", struct.pack(">I", len(payload)) + payload)


# ---- random frames


def text(rng: random.Random, low: int, high: int) -> str:
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
    return "".join(rng.choices(alphabet, k=rng.randint(low, high)))


def kafka(rng: random.Random) -> bytes:
    key = rng.choice((0, 1, 2, 3, 10, 11, 18, 19, 22, 60, 75))
    version = rng.randint(0, 255) if key == 18 else rng.randint(0, 17)
    client = text(rng, 0, 20).encode()
    body = struct.pack(">hhih", key, version, rng.randrange(1 << 31), len(client)) + client
    body += rng.randbytes(rng.choice((0, 1, 30, 40_000)))
    return struct.pack(">i", len(body)) + body


def mlog(rng: random.Random) -> bytes:
    topic = text(rng, 1, 120)
    value = rng.randbytes(rng.choice((0, 1, 100, 180, rng.randrange(1000), 70_000)))
    kind = rng.randrange(4)
    if kind == 0:
        message: m.Message = m.Produce(topic=topic, value=value, acks=rng.randrange(3))
    elif kind == 1:
        message = m.ProduceBatch(topic=topic, values=[value], acks=rng.randrange(3))
    elif kind == 2:
        message = m.FetchBatch(topic=topic, id=text(rng, 0, 500), offset=rng.randrange(1 << 60))
    else:
        message = m.CreateTopic(topic=topic, replica_count=rng.randrange(4))
    return codec.encode_frame(message, rng.choice(list(Encoding)))


def minibroker(rng: random.Random) -> bytes:
    topic = text(rng, 1, 249 if rng.random() < 0.2 else 12).encode()
    named = struct.pack(">H", len(topic)) + topic
    op = rng.choice((1, 1, 1, 2, 3, 4, 6))
    if op == 1:
        key = rng.randbytes(rng.choice((0, 3, 20)))
        # Some of these are as large as the type of an mlog request makes them look.
        size = rng.choice((0, 5, 2000, rng.randrange(131_000, 132_200), 1_500_000))
        body = struct.pack(">I", len(key)) + key + struct.pack(">I", size) + bytes(size)
    elif op == 2:
        body = rng.choice((b"\0" + bytes(4), b"\1" + bytes(12), b"\2\0\1g"))
    elif op == 3:
        body = b""
    else:
        body = b"\0\1g" + (rng.randbytes(12) if op == 4 else b"")
    return struct.pack(">IB", 1 + len(named) + len(body), op) + named + body


def cursus(rng: random.Random) -> bytes:
    command = rng.choice(
        (
            "LIST",
            "create topic=t",
            "PUBLISH topic=t producerId=p message=x",
            "HELP",
            "STREAM topic=t",
        )
    ).encode()
    if command.startswith(b"PUBLISH") and rng.random() < 0.5:
        command += bytes(rng.choice((131_050, 1_507_200)))
    kind = rng.randrange(4)
    if kind == 0:
        payload = command
    elif kind == 1:
        topic = rng.choice(("", "admin", "orders", "a=b.c-d_e")).encode()
        payload = struct.pack(">H", len(topic)) + topic + command
    elif kind == 2:
        topic = text(rng, 1, 30).encode()
        payload = b"\xba\x7c" + struct.pack(">H", len(topic)) + topic + rng.randbytes(40)
        payload += bytes(rng.choice((0, 131_000, 262_200)))
    else:
        packer = zlib.compressobj(wbits=31)
        magics = (packer.compress(command) + packer.flush(), b"\x82SNAPPY\0" + bytes(30))
        payload = rng.choice((*magics, b"\x04\x22\x4d\x18" + bytes(30), b"\x28\xb5\x2f\xfdxxx"))
    return struct.pack(">I", len(payload)) + payload


def rocketmq(rng: random.Random) -> bytes:
    code = rng.choice((10, 11, 15, 34, 38, 105, 206, 310, 320, 400, 3005))
    # Properties of a message are in the header, and make it as long as they like.
    long = rng.choice((0, 0, 200, 2500, rng.randrange(3000), 31_400, 70_000))
    fields = {"topic": text(rng, 1, 120), "queueId": "1", "properties": text(rng, long, long + 200)}
    size = rng.choice((0, 5, 2000, rng.randrange(131_000, 132_200), 1_500_000))
    command = Command(
        code=code,
        opaque=rng.randrange(1 << 31),
        language=rng.choice(LANGUAGES),
        fields=rng.choice(({}, fields)),
        body=bytes(size),
        serialization=rng.choice(list(Serialization)),
    )
    return encode(command)


@pytest.mark.parametrize("make", [kafka, mlog, minibroker, cursus, rocketmq])
def test_random_frames_are_never_taken_for_another_protocol(
    make: Callable[[random.Random], bytes],
) -> None:
    rng = random.Random(make.__name__)
    for number in range(1500):
        data = make(rng)
        # Some have long topics before what tells more: up to their end, and a little.
        check_every_cut(make.__name__, data[: 300 if number % 10 == 0 else 40], 300)
        assert detect(data[:300]) == make.__name__


def test_mlog_frames_whose_size_is_that_of_another_protocols_fields() -> None:
    """Sizes that are multiples of 256 put zeros where minibroker has the length of a topic."""
    for topic_bytes in (5, 10, 31, 32, 45, 60, 100, 122, 127, 128):
        for size in (256, 512, 768, 1024, 1536):
            for encoding in Encoding:
                # The client id is what makes it as long as wanted.
                empty = m.FetchBatch(topic="t" * topic_bytes, id="c" * 128)
                missing = size + 6 - len(codec.encode_frame(empty, encoding))
                if missing >= 0:
                    message = m.FetchBatch(topic=empty.topic, id="c" * (128 + missing))
                    frame = codec.encode_frame(message, encoding)
                    assert len(frame) == size + 6
                    check_every_cut("mlog", frame[:60], 22)


@pytest.mark.parametrize("serialization", Serialization)
def test_rocketmq_frames_whose_lengths_are_other_protocols_first_bytes(
    serialization: Serialization,
) -> None:
    """Sizes that read as the type of an mlog request, headers whose length reads as `{"`, as the
    first field of protobuf, as letters of a command, or as the topic of a minibroker PUB.
    """
    headers = (0x7B22, 0x7B7D, 0x7B20, 0x0A05, 0x0A80, 0x0A81, 0x0A9F, 0x4C49, 0x4352, 0x17B22)
    for header in (*headers, *range(0x100, 0x200, 7)):
        command = Command(
            code=10, language="JAVA", fields={"p": "x" * 20}, serialization=serialization
        )
        bare = int.from_bytes(encode(command)[5:8], "big")
        command.fields = {"p": "x" * (20 + header - bare)}
        for size in (header + 4, 131_073, 131_100, 262_160, 700_000, 1_507_329):
            if size >= header + 4:
                command.body = bytes(size - header - 4)
                frame = encode(command)
                assert int.from_bytes(frame[:4], "big") == size
                assert int.from_bytes(frame[5:8], "big") == header
                check_every_cut("rocketmq", frame[:40])


def test_minibroker_topics_of_few_letters() -> None:
    """They lie where the code of a RocketMQ request is."""
    for topic in ("", "a", "ab", "abc", "abcd"):
        for key_bytes in (0, 1, 300, 65_535):
            for payload_bytes in (0, 1000, 700_000):
                body = struct.pack(">BH", 1, len(topic)) + topic.encode()
                body += struct.pack(">I", key_bytes) + bytes(key_bytes)
                body += struct.pack(">I", payload_bytes) + bytes(payload_bytes)
                check_every_cut("minibroker", (struct.pack(">I", len(body)) + body)[:40])


# ---- of no protocol


def test_tls_is_known() -> None:
    assert detect(b"\x16") is None
    assert detect(b"\x16\x03\x01\x02\x00\x01") == TLS


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"PING\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        bytes.fromhex("0640000101"),
        b"\xff" * 20,
        b"\x16\x16\x16\x16\x16\x16",
        # RocketMQ, but for: a header larger than the frame, an array, no code, no such language,
        # and a type of header that there is not.
        b"\x00\x00\x00\x6c\x00\x00\x00\x69" + b'{"code":105,"flag":0}',
        b"\x00\x00\x00\x6c\x00\x00\x00\x68" + b'["code",105,"flag",0]',
        b"\x00\x00\x00\x45\x01\x00\x00\x3d\x00\x00\x00\x01\x5f" + bytes(30),
        b"\x00\x00\x00\x45\x01\x00\x00\x3d\x00\x69\x0e\x01\x5f" + bytes(30),
        b"\x00\x00\x00\x45\x07\x00\x00\x3d\x00\x69\x00\x01\x5f" + bytes(30),
        # A Kafka version and a Cursus command that do not exist.
        bytes.fromhex("0000000a0003010000000001ffff"),
        b"\x00\x00\x00\x09BOGUS a=b",
    ],
)
def test_bytes_of_no_protocol_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="no protocol begins with"):
        detect(data)


def test_random_bytes_never_raise_anything_else() -> None:
    rng = random.Random("bytes")
    for _ in range(20_000):
        data = rng.randbytes(rng.randrange(1, 40))
        if rng.random() < 0.7:
            data = bytes(rng.choices(b"\x00\x00\x01\x02\x12\x0a{\x22aL", k=len(data)))
        try:
            detect(data)
        except RemoteProtocolError:
            continue
