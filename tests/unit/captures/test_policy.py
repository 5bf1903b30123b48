"""Goal: an address of a database uses nothing of the node's that it does not name, and gives no
password away to a server that asks for it in clear.

Method: addresses in both forms; what libpq makes of the secured one is compared.
"""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from dragoman.captures.addresses import (
    NO_FILE,
    borrowed,
    has_secret,
    hide_secrets,
    parameters,
    resolved,
    secured,
    with_methods,
    without_secrets,
)
from dragoman.errors import ConfigError
from dragoman.operating_system import child_environment

SECRET = "hunter2"
SCRAM = "scram-sha-256,none"
ANY = "password,md5,scram-sha-256,none"


def used(dsn: str) -> dict[str, object]:
    return conninfo_to_dict(secured(dsn))


@pytest.mark.parametrize(
    "dsn",
    [
        "host=prod-db hostaddr=10.6.6.6 user=app",
        "postgresql://prod-db/shop?hostaddr=10.6.6.6",
        "postgresql://prod-db/shop?%68ostaddr=10.6.6.6",
        "service=shop",
        "postgresql:///?service=shop",
        "host=db sslkeylogfile=/tmp/keys",
        "host=db gssdelegation=1",
        "host=db replication=database",
        "host=db oauth_issuer=http://10.6.6.6/",
        "host=db servicefile=/tmp/x service=y",
        "host=db passfile=.pgpass",
        "host=db sslcert=/c sslkey=pkcs11:token",
        "host=db sslcert=/c",
        "host=db sslkey=/k",
        "host=db sslcertmode=require",
        "postgresql://u:p%00@db/shop",
        "postgresql://db/shop?host=a%00",
        "postgresql://u:hun@ter2@db/shop",
        "host=db password='hunter2",
        # A value is missing, and libpq takes what follows for it.
        "host=db user= password=hunter2 dbname=shop",
        "host=db require_auth= password=hunter2",
        "host= password=hunter2 user=app",
        "host=db dbname='host=other password=hunter2'",
        "host=db dbname=postgresql://u:hunter2@other/shop",
        "host=db require_auth=hunter2",
    ],
)
def test_addresses_that_lead_elsewhere_or_use_the_nodes_own_are_refused(dsn: str) -> None:
    with pytest.raises(ConfigError) as refused:
        secured(dsn)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("dsn", "methods"),
    [
        ("host=db password=x", SCRAM),
        ("postgresql://u:x@db/shop", SCRAM),
        ("host=127.0.0.1 password=x", SCRAM),
        ("host=db sslmode=prefer", SCRAM),
        ("host=db sslmode=disable", SCRAM),
        ("host=db sslmode=verify-full", ANY),
        ("postgresql://db/shop?sslmode=require", ANY),
        ("postgresql://db/shop?ssl=true", ANY),
        ("host=/run/postgresql", ANY),
        ("host=@abstract", ANY),
        ("dbname=shop", ANY),
        ("postgresql://%2Frun%2Fpostgresql/shop", ANY),
        ("host=/run/postgresql,db", SCRAM),
        ("host=db passfile=/etc/capture.pgpass sslmode=verify-full", SCRAM),
        ("host=/run/postgresql passfile=/etc/capture.pgpass", SCRAM),
        ("host=db require_auth=scram-sha-256", "scram-sha-256"),
        ("host=db require_auth=gss", "gss"),
        ("host=db require_auth=!password,!md5,!gss,!sspi", SCRAM),
    ],
)
def test_passwords_are_given_away_by_scram_or_over_tls_or_locally(dsn: str, methods: str) -> None:
    assert used(dsn)["require_auth"] == methods


@pytest.mark.parametrize(
    "dsn",
    [
        "host=db require_auth=password",
        "host=db require_auth=!none",
        "host=db require_auth=md5,scram-sha-256",
        "host=db sslmode=verify-full passfile=/p require_auth=password",
        "host=db sslmode=require require_auth=oauth",
    ],
)
def test_address_cannot_ask_for_less(dsn: str) -> None:
    with pytest.raises(ConfigError, match="require_auth"):
        secured(dsn)


def test_files_of_the_node_are_used_only_where_they_are_named() -> None:
    plain = used("host=db")
    assert plain["passfile"] == NO_FILE
    assert plain["sslcertmode"] == "disable"
    assert plain["gssencmode"] == "disable"
    named = used("host=db passfile=/p sslcert=/c sslkey=/k sslrootcert=system sslmode=verify-full")
    assert named["passfile"] == "/p"
    assert (named["sslcert"], named["sslkey"]) == ("/c", "/k")
    assert "sslcertmode" not in named


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://app:p%40s+s%25@db:1,other:2/shop?target_session_attrs=any&sslmode=prefer",
        r"host=db password='a \' b\\' dbname=my\ shop",
        "host='' user=app",
    ],
)
def test_what_an_address_says_is_kept_and_securing_it_again_changes_nothing(dsn: str) -> None:
    given = {key: value for key, value in conninfo_to_dict(dsn).items() if value != ""}
    assert given.items() <= used(dsn).items()
    assert secured(secured(dsn)) == secured(dsn)


def test_only_allowed_hosts_are_reached() -> None:
    def may_reach(host: str) -> bool:
        return host in {"db", "/run/postgresql"}

    for dsn in ("host=db", "host=db,/run/postgresql", "postgresql://db:1,db:2/x"):
        secured(dsn, may_reach)
    for dsn in (
        "host=db,other",
        "postgresql://db/x?host=other",
        "postgresql://db%2Cother/x",
        "host=db host=other",
        "dbname=x",
        "host=db,",
        "host=/tmp",
    ):
        with pytest.raises(ConfigError):
            secured(dsn, may_reach)


def test_environment_of_a_process_has_nothing_of_libpq_and_no_secrets() -> None:
    environment = {
        "PATH": "/bin",
        "HOME": "/root",
        "PGPASSWORD": SECRET,
        "PGHOSTADDR": "10.6.6.6",
        "PGSERVICEFILE": "/x",
        "DRAGOMAN_CDC_DSN": SECRET,
        "SHOP_PASSWORD": SECRET,
    }
    assert child_environment(environment) == {"PATH": "/bin", "HOME": "/root"}


@pytest.mark.parametrize(
    ("dsn", "environment", "methods"),
    [
        ("host=db", {}, SCRAM),
        ("dbname=shop", {"PGHOST": "db"}, SCRAM),
        ("dbname=shop", {"PGHOSTADDR": "10.0.0.1"}, SCRAM),
        ("dbname=shop", {}, ANY),
        ("host=db", {"PGSSLMODE": "verify-full"}, ANY),
        ("host=db passfile=/p sslmode=require", {}, ANY),
        ("host=db require_auth=password", {}, "password"),
        ("host=db", {"PGREQUIREAUTH": "md5"}, None),
        ("service=shop", {}, None),
        ("host=db", {"PGSERVICE": "shop"}, None),
    ],
)
def test_an_operators_own_address_keeps_to_what_it_says(
    dsn: str, environment: dict[str, str], methods: str | None
) -> None:
    told = conninfo_to_dict(with_methods(dsn, environment))
    assert told.get("require_auth") == methods
    assert told.items() >= conninfo_to_dict(dsn).items()


# ---- references to secrets


@pytest.mark.parametrize("reference", ["file:/etc/shop.password", "env:SHOP_PASSWORD"])
def test_a_reference_is_no_secret_and_is_resolved_for_scram_only(reference: str) -> None:
    dsn = f"host=db user=app password={reference} sslmode=verify-full"
    assert not has_secret(dsn)
    assert without_secrets(dsn) == dsn
    found = resolved(secured(dsn), lambda text: SECRET if text == reference else text)
    assert parameters(found)["password"] == SECRET  # type: ignore[index]
    assert parameters(found)["require_auth"] == "scram-sha-256,none"  # type: ignore[index]
    # The process secures its address again.
    assert secured(found) == found


def test_addresses_with_a_secret_are_known() -> None:
    for dsn in (
        f"host=db password={SECRET}",
        f"postgresql://app:{SECRET}@db/shop",
        f"host=db password=file:/x sslpassword={SECRET}",
        f"host=db user='file:/x password={SECRET}'",
        "postgresql://a@b@c",
    ):
        assert has_secret(dsn)
        assert SECRET not in without_secrets(dsn)
        assert SECRET not in hide_secrets(f"cannot connect: {dsn}", dsn)
    for dsn in ("host=db", "host=db passfile=/x", "postgresql://app@db/shop"):
        assert not has_secret(dsn)


@pytest.mark.parametrize(
    ("dsn", "keyword"),
    [
        ("host=db password=file:/etc/shop.password", "password"),
        ("host=db password=env:SHOP_PASSWORD", "password"),
        ("postgresql://app:env%3ASHOP@db/shop", "password"),
        ("host=db sslcert=/c sslkey=/k sslpassword=env:PHRASE", "sslcert"),
        ("host=db sslpassword=env:PHRASE", "sslpassword"),
        ("host=db scram_client_key=file:/k", "scram_client_key"),
        ("host=db passfile=/etc/capture.pgpass", "passfile"),
        ("host=db sslrootcert=/etc/ca.pem sslmode=verify-full", "sslrootcert"),
        ("host=db sslcrl=/crl", "sslcrl"),
        ("host=db sslcrldir=/crls", "sslcrldir"),
        ("host=db require_auth=gss", "require_auth"),
        ("host=db require_auth='scram-sha-256, sspi'", "require_auth"),
        ("host=db require_auth=!password,!md5", "require_auth"),
        ("host=db gssencmode=prefer", "gssencmode"),
    ],
)
def test_addresses_that_use_what_belongs_to_the_node_are_known(dsn: str, keyword: str) -> None:
    assert borrowed(dsn) == keyword
    assert borrowed(without_secrets(dsn)) == keyword
    assert borrowed(secured(dsn))


@pytest.mark.parametrize(
    "dsn",
    [
        "host=db",
        f"host=db password={SECRET} sslpassword={SECRET} sslmode=verify-full sslrootcert=system",
        f"postgresql://app:{SECRET}@db/shop?sslmode=require",
        f"host=db passfile={NO_FILE}",
        "host=env:HOST user=file:/user",
        "host=db require_auth=!password,!md5,!gss,!sspi gssencmode=disable",
    ],
)
def test_other_addresses_use_nothing_of_the_node(dsn: str) -> None:
    assert not borrowed(dsn)
    assert not borrowed(secured(dsn))


def test_ambiguous_addresses_count_as_those_that_use_the_node() -> None:
    assert borrowed("postgresql://a@b@c")


def test_only_secrets_are_resolved() -> None:
    dsn = "host=env:HOST user=file:/user password=env:PASSWORD"
    found = parameters(resolved(dsn, lambda _: SECRET))
    assert found == {"host": "env:HOST", "user": "file:/user", "password": SECRET}
