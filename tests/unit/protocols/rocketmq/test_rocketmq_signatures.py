"""Signatures of requests: the bytes that are signed, and the comparison.

The vectors are those of the specification (section 11). Generated fields are signed by an oracle
that follows Java's description literally.
"""

from __future__ import annotations

import hmac
from base64 import b64encode

from hypothesis import given
from hypothesis import strategies as st

from dragoman.protocols.rocketmq.signatures import (
    SIGNATURE,
    content,
    is_signed_with,
    signature,
    signed,
)

KEY = b"12345678"
V9 = {"AccessKey": "rocketmq2", "consumerGroup": "g", "queueId": "0", "topic": "T"}
#: Ordinals of versions, as in the header of a request.
V4_9_3, V4_9_4 = 399, 401

fields_of_requests = st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=20))


def test_signatures_are_those_of_the_specification() -> None:
    assert signature(KEY, V9) == "FEd+ziWcg7plL4b/yjUTkQ3d2Lg="
    assert signature(KEY, V9, b"hello") == "RMKc4m/5sb8iwCqPLD3CbD4HhHc="
    given_fields = {name: value for name, value in V9.items() if name != "AccessKey"}
    whole = signed(given_fields, b"", access_key="rocketmq2", secret_key="12345678")
    assert whole == V9 | {"Signature": "FEd+ziWcg7plL4b/yjUTkQ3d2Lg="}
    assert signature(KEY, whole) == whole["Signature"]


def test_the_security_token_is_signed() -> None:
    whole = signed({"a": "1"}, b"", access_key="k", secret_key="s", security_token="t")
    assert content(whole, b"", V4_9_4) == b"kt1"


def test_the_order_of_fields_has_no_effect() -> None:
    assert signature(KEY, dict(reversed(V9.items()))) == signature(KEY, V9)


def test_names_are_sorted_by_utf16_units() -> None:
    # U+1F600 is a pair of surrogates, which are below U+FF5E as code units.
    assert content({"\uff5e": "2", "\U0001f600": "1"}, b"", V4_9_4) == b"12"


def test_clients_up_to_4_9_3_leave_the_unique_key_query_unsigned() -> None:
    fields = {"_UNIQUE_KEY_QUERY": "true", "topic": "T"}
    assert content(fields, b"", V4_9_3) == b"T"
    assert content(fields, b"", V4_9_4) == b"trueT"


def test_a_body_of_any_buffer_is_signed() -> None:
    whole = bytes(range(256))
    for body in (whole, bytearray(whole), memoryview(whole)):
        assert content({}, body, V4_9_4) == whole


@given(fields_of_requests, st.binary(max_size=64), st.binary(min_size=1, max_size=32))
def test_signatures_follow_the_description(fields: dict[str, str], body: bytes, key: bytes) -> None:
    names = sorted(fields, key=lambda name: name.encode("utf-16-be"))
    text = "".join(fields[name] for name in names if name != SIGNATURE)
    wanted = b64encode(hmac.new(key, text.encode() + body, "sha1").digest()).decode()
    assert signature(key, fields, body, V4_9_4) == wanted
    assert is_signed_with(key, fields | {SIGNATURE: wanted}, body, V4_9_4)


@given(fields_of_requests, st.binary(max_size=64), st.text(max_size=40))
def test_any_other_signature_is_wrong(fields: dict[str, str], body: bytes, forged: str) -> None:
    right = signature(KEY, fields, body, V4_9_4)
    for wrong in (forged, right[:-1], right + "=", right.lower(), "", right.rstrip("=")):
        if wrong != right:
            assert not is_signed_with(KEY, fields | {SIGNATURE: wrong}, body, V4_9_4)


def test_a_request_without_a_signature_is_not_signed() -> None:
    assert not is_signed_with(KEY, V9, b"", V4_9_4)
