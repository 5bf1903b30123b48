"""Which listeners other machines reach without a login, and what the operator is to type."""

from __future__ import annotations

import pytest

from dragoman.config.layers import Assignment, Flags, load
from dragoman.config.posture import exposed, exposure, remedy
from dragoman.config.settings import Settings


def settings(*assignments: str, listen: tuple[str, ...]) -> Settings:
    pairs = (each.split("=", 1) for each in assignments)
    flags = Flags(
        assignments=tuple(Assignment("--set", key, text) for key, text in pairs), listen=listen
    )
    return load(file=None, environment={}, flags=flags).settings


def names(found: Settings) -> list[str]:
    return [each.name for each in exposed(found)]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.8.0.1:1", "localhost:1", "[::1]:1"])
def test_listener_on_loopback_is_not_exposed(address: str) -> None:
    assert names(settings(listen=(f"kafka={address}",))) == []


@pytest.mark.parametrize(
    "address", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "broker.example:1", "127.0.0.1.example:1"]
)
def test_listener_elsewhere_is_exposed(address: str) -> None:
    assert names(settings(listen=(f"kafka={address}", "http=127.0.0.1:2"))) == ["kafka"]


@pytest.mark.parametrize(
    ("assignments", "is_exposed"),
    [
        (("authentication=required",), False),
        (("listener.kafka.authentication=required",), False),
        (("authentication=required", "listener.kafka.authentication=optional"), True),
        (("listener.kafka-tls.authentication=required",), True),
        (("tls=required", "ssl.certificate.file=a"), True),
        (
            (
                *("tls=required", "ssl.certificate.file=a", "ssl.ca.file=b"),
                "ssl.client.auth=required",
            ),
            False,
        ),
        (
            (
                *("tls=optional", "ssl.certificate.file=a", "ssl.ca.file=b"),
                "ssl.client.auth=required",
            ),
            True,
        ),
        (("principals=0.0.0.0/0=batch",), True),
    ],
)
def test_login_or_certificate_must_be_required(
    assignments: tuple[str, ...], is_exposed: bool
) -> None:
    assert bool(exposed(settings(*assignments, listen=("kafka=0.0.0.0:1",)))) == is_exposed


def test_operator_reads_what_to_type() -> None:
    found = exposed(settings(listen=("kafka=0.0.0.0:9092", "http=10.0.0.1:8080")))
    assert exposure(found) == (
        "other machines reach kafka on 0.0.0.0:9092, http on 10.0.0.1:8080 without a login"
    )
    assert "--set listener.kafka.authentication=required" in remedy(found)
    assert "--insecure" in remedy(found)


def test_certificate_alone_makes_no_node() -> None:
    """Clients may have certificates of the same authority."""
    certified = ("tls=required", "ssl.certificate.file=a", "ssl.ca.file=b")
    listen = ("kafka=0.0.0.0:1", "peer=10.0.0.1:2")
    found = settings(*certified, "ssl.client.auth=required", listen=listen)
    assert names(found) == ["peer"]
    assert "--set peer.secret.file=FILE" in remedy(exposed(found))
    recognised = settings(
        *certified, "ssl.client.auth=required", "authentication=required", listen=listen
    )
    assert names(recognised) == []


def test_console_demands_a_login_of_other_machines_by_itself() -> None:
    assert names(settings(listen=("console=0.0.0.0:8081", "http=0.0.0.0:1"))) == ["http"]
