"""Goal: whatever bytes a node finds in place of a message or record of another node, its decoders
raise nothing but `DragomanError`.

Method: the golden vectors, with texts that are no UTF-8, with unknown fields that are nested too
deeply, and with seeded mutations. `DRAGOMAN_FUZZ_ROUNDS` multiplies the mutations.
"""

from __future__ import annotations

import os
import random

import pytest

from dragoman.errors import DragomanError
from golden import vectors
from golden.forms import FORMS

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
MUTANTS = 40
NESTED = 100_000
#: Forms that are read by a decoder of the node, and not by the tests' own.
DECODED = (
    "metadata",
    "raft",
    "raft-snapshot",
    "etcd-head",
    "etcd-holder",
    "etcd-snapshot",
    "replication",
    "neighbour-request",
    "cursus",
    "rocketmq",
    "capture-definition",
    "group-key",
    "transaction",
    "deferred-record",
    "deferred-release",
    "deferred-batch",
    "publication",
)
#: What is read here is also applied, so only bytes that cannot be read are of interest.
APPLIED = ("image",)
GOLDEN = vectors.read()


def of(forms: tuple[str, ...]) -> list[str]:
    return [name for name in GOLDEN if name.partition(" ")[0] in forms]


def is_read(name: str, data: bytes) -> bool:
    """Whether the bytes are taken; any error but `DragomanError` is raised."""
    try:
        vectors.form_of(name).decode(data)
    except DragomanError:
        return False
    return True


def nested(data: bytes) -> bytes | None:
    """The message with one more field, of arrays in arrays; None if it is no map of few fields."""
    if data[:1] == b"{":
        return b'{"later":' + b"[" * NESTED + b"]" * NESTED + b"," * (data[1:2] != b"}") + data[1:]
    if 0x80 <= data[0] < 0x8F:
        # The tag, if there is one, has to be the first field: the new one follows all others.
        return bytes((data[0] + 1,)) + data[1:] + b"\xa5later" + b"\x91" * NESTED + b"\xc0"
    return None


@pytest.mark.parametrize("name", of((*DECODED, *APPLIED)))
def test_text_that_is_no_utf_8_is_refused(name: str) -> None:
    data = GOLDEN[name]
    at = data.find(b"text ")
    while at >= 0:
        assert not is_read(name, data[:at] + b"\xff" + data[at + 1 :])
        at = data.find(b"text ", at + 1)


@pytest.mark.parametrize("name", of((*DECODED, *APPLIED)))
def test_unknown_field_that_is_nested_too_deeply_is_refused(name: str) -> None:
    data = nested(GOLDEN[name])
    if data is not None:
        is_read(name, data)


@pytest.mark.parametrize("form", DECODED)
def test_mutants_raise_nothing_else(form: str) -> None:
    rng = random.Random(f"mutants of {form}")
    for name in of((form,)):
        for _ in range(MUTANTS * ROUNDS):
            data = bytearray(GOLDEN[name])
            for _ in range(rng.choice((1, 1, 2, 5))):
                if rng.random() < 0.2:
                    del data[rng.randrange(len(data) + 1) :]
                elif data:
                    data[rng.randrange(len(data))] = rng.choice((0x80, 0x91, 0xA1, 0xC0, 0xFF))
            is_read(name, bytes(data))


def test_every_decoder_is_there() -> None:
    assert FORMS.keys() >= {*DECODED, *APPLIED}
