"""Goal: no secret of a database's address is shown, in whatever form libpq takes it.

Method: addresses in both forms, with everything in them that can be escaped or left out.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dragoman.captures.addresses import hide_secrets, parameters, server_of, without_secrets

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://db.example/shop", "host=db.example port=5432 dbname=shop"),
        (
            "postgres://app:hunter2@db.example:5433/shop?sslmode=require&sslpassword=hunter2",
            "user=app password=******** host=db.example port=5433 dbname=shop sslmode=require "
            "sslpassword=********",
        ),
        ("postgresql://app:hunter2@", "user=app password=********"),
        (
            "postgresql://app:hunter2%40@[::1]:1,b:2/s",
            "user=app password=******** host=::1,b port=1,2 dbname=s",
        ),
        ("host=db user=app password=hunter2", "host=db user=app password=********"),
        ("password = 'hunter2 \\' x' host=db", "password=******** host=db"),
        ("password=hunter2\\ more host=db", "password=******** host=db"),
        ("host=db dbname='my shop' password=", "host=db dbname='my shop' password=********"),
        ("", ""),
    ],
)
def test_secrets_are_hidden(dsn: str, shown: str) -> None:
    assert without_secrets(dsn) == shown


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://app:hun@ter2@db/shop",
        "postgresql://app:hun/ter2@db/shop",
        "postgresql://app:hun#ter2:x:y",
        "password='hunter2 user=app",
        "password=x hunter2",
        "hunter2",
    ],
)
def test_what_cannot_be_read_for_sure_is_hidden_altogether(dsn: str) -> None:
    assert without_secrets(dsn) == "********"
    assert server_of(dsn) is None


@settings(max_examples=50)
@given(
    password=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=8).map(
        lambda text: f"<{text}>"
    )
)
def test_whatever_the_password_is_it_is_not_shown(password: str) -> None:
    dsn = make_conninfo(host="db", user="app", password=password, dbname="shop")
    shown = without_secrets(dsn)
    assert password not in shown
    assert conninfo_to_dict(shown) == {
        "host": "db",
        "user": "app",
        "password": "********",
        "dbname": "shop",
    }
    assert password not in hide_secrets(f"refused for {password}: {dsn}", dsn)


@pytest.mark.parametrize(
    "text",
    [
        "connection to postgresql://app:p%40ss%2Fw@db/shop failed",
        "password 'p@ss/w' is wrong",
        "p%40ss/w",
    ],
)
def test_texts_that_quote_the_address_lose_its_secrets(text: str) -> None:
    hidden = hide_secrets(text, "postgresql://app:p%40ss%2Fw@db/shop")
    assert "ss/w" not in hidden
    assert "p%40ss" not in hidden


def test_texts_keep_what_is_no_secret() -> None:
    text = 'role "app" may not read table orders of db.example'
    assert hide_secrets(text, "postgresql://app:hunter2@db.example/shop") == text
    assert hide_secrets("a b", "host=x password=a") == "a b"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("postgresql://u:a@db/x", "host=db dbname=y", True),
        ("postgresql://db:5433/x", "host=db port=5433", True),
        ("postgresql://db:5433/x", "host=db", False),
        ("host=db hostaddr=10.0.0.1", "postgresql://10.0.0.1", True),
        ("", "port=5432", True),
    ],
)
def test_addresses_of_one_server_are_known_as_such(one: str, other: str, is_same: bool) -> None:
    assert (server_of(one) == server_of(other)) is is_same


def test_a_service_may_lead_anywhere() -> None:
    assert server_of("service=shop") is None


@pytest.mark.parametrize(
    "dsn",
    [
        "host=db user= password=hunter2 dbname=shop",
        "host=db dbname='user=u  password = hunter2'",
        "host=db dbname=postgresql://u:hunter2@other/shop",
        "host=db options= sslpassword=hunter2",
    ],
)
def test_secret_that_stands_where_another_value_is_missing_is_hidden(dsn: str) -> None:
    assert "hunter2" not in without_secrets(dsn)
    said = hide_secrets(f"no user {(parameters(dsn) or {})}, given hunter2", dsn)
    assert "hunter2" not in said


def test_ordinary_options_are_shown() -> None:
    dsn = "host=db options='-c password_encryption=md5 -c search_path=a'"
    assert "search_path=a" in without_secrets(dsn)


def test_address_within_an_address_within_an_address_is_no_trouble() -> None:
    dsn = "host=db user=" + "password=" * 5_000 + "x"
    assert "password=" not in without_secrets(dsn)
    assert hide_secrets("text", dsn) == "text"
