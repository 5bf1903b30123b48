"""Every error code becomes an exception with Kafka's number, name and retriability."""

from __future__ import annotations

import pytest

from dragoman.client import kafka
from dragoman.protocols.kafka.client.errors import _CLASSES, KafkaError, kafka_error
from dragoman.protocols.kafka.errors import RETRIABLE, ErrorCode


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_code_becomes_its_exception(code: ErrorCode) -> None:
    error = kafka_error(code, topic="t", partition=3)
    assert error.error_code == code
    assert error.name == code.name
    assert error.retriable == (code in RETRIABLE)
    assert str(error).startswith("topic 't' partition 3: ")
    assert code.name in str(error)


def test_no_code_has_two_classes() -> None:
    codes = [code for group in _CLASSES.values() for code in group]
    assert len(codes) == len(set(codes))


def test_classes_have_stable_codes_of_their_own() -> None:
    words = [kind.code for kind in _CLASSES]
    assert len(words) == len(set(words))
    assert "kafka" not in words


def test_code_of_a_newer_kafka_is_an_error_too() -> None:
    error = kafka_error(9999, "whatever it means.", group="g")
    assert type(error) is KafkaError
    assert not error.retriable
    assert str(error) == "group 'g': whatever it means (code 9999)"


def test_public_module_exports_every_class() -> None:
    for kind in _CLASSES:
        assert getattr(kafka, kind.__name__) is kind
    assert sorted(kafka.__all__, key=str.lower) == sorted(set(kafka.__all__), key=str.lower)
    assert all(hasattr(kafka, name) for name in kafka.__all__)
