"""Goal: a bundle has what a bug report needs, and no secret from any place that may hold one.

Method: secrets are planted in settings, the environment, a log, users, captures and the directory;
every file of the bundle is searched for them.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from dragoman.api.access_values import CreatedToken, NewToken
from dragoman.api.values import CaptureDescription
from dragoman.captures.definition import Definition
from dragoman.cli.main import main
from dragoman.cli.remote import Remote
from dragoman.cli.support import collection, machine, secrets
from dragoman.cli.support.collection import Collection
from dragoman.cli.support.names import Names
from dragoman.cli.support.secrets import Json
from dragoman.client.kafka import BlockingKafkaClient, NewTopic
from dragoman.testing import EphemeralBroker

PLANTED = [f"planted{number}Zq" for number in range(20)]


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {}
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read().decode()
    return found


@pytest.fixture
def planted_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    one, two, three, four, five, six, seven, eight, nine = PLANTED[:9]
    config = tmp_path / "dragoman.toml"
    # The second line makes the file invalid: it is still in the bundle.
    config.write_text(
        f'metadata.etcd.password = "{one}"\n'
        f'unknown.token = "{two}"\n'
        f'peer.secret.file = "/etc/dragoman/peer.secret"\n'
        f'metadata.etcd.endpoints = ["https://etcd:{three}@10.0.0.1:2379"]\n'
    )
    log = tmp_path / "node.log"
    log.write_text(
        f"2026 INFO dragoman.cdc connecting dsn=postgres://cdc:{four}@db/shop topic=orders\n"
        f"2026 INFO dragoman.cdc dsn=\"host=db password='{five} and more {five}' user=cdc\"\n"
        f'{{"message":"login","authorization":"Bearer {six}abcdefgh","client":"app-7"}}\n'
        f"-----BEGIN PRIVATE KEY-----\n{seven}\n-----END PRIVATE KEY-----\n"
        f"2026 INFO x password=env:DB_PASSWORD sasl.jaas.config=\"Module username='a' "
        f"password='{eight}';\"\n"
    )
    monkeypatch.setenv("DRAGOMAN_METADATA_ETCD_PASSWORD", nine)
    return config, log


def test_bundle_has_no_planted_secret(
    planted_files: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, log = planted_files
    data = tmp_path / "data"
    with EphemeralBroker(storage="directory", directory=str(data), users={"alice": PLANTED[10]}):
        node = Remote(f"unix:{data}")
        token = node.post("/api/v1/security/users/alice/tokens", NewToken(), CreatedToken).token
        dsn = f"host=127.0.0.1 port=1 dbname=shop user=cdc password={PLANTED[11]}"
        node.post(
            "/api/v1/captures",
            Definition(name="shop", dsn=dsn, tables=("public.orders",)),
            CaptureDescription,
        )
        out = tmp_path / "bundle.tar.gz"
        status = main(
            [
                *("debug", "bundle", str(data), "--server", f"unix:{data}"),
                *("--config", str(config), "--log-file", str(log), "--output-file", str(out)),
            ]
        )
        assert status == 0
    found = unpacked(out)
    whole = "\n".join(found.values())
    for secret in (*PLANTED, token):
        assert secret not in whole, [name for name in found if secret in found[name]]
    assert "/etc/dragoman/peer.secret" in found["settings/file.toml"]
    assert "env:DB_PASSWORD" in found["log.txt"]
    assert "alice" in found["node/users.json"]
    assert "dbname=shop" in found["node/captures.json"]
    assert {
        *("manifest.json", "missing.json", "machine.json", "log.txt", "settings/file.toml"),
        *("node/readyz.json", "node/cluster.json", "node/topics.json", "node/metrics.txt"),
        *("node/groups.json", "node/connections.json", "node/damage.json", "node/doctor.json"),
        *("node/captures.json", "directory/files.json", "directory/inspect.json"),
        "directory/doctor.json",
    } <= set(found)
    missing = {each["path"]: each["why"] for each in json.loads(found["missing.json"])}
    assert "unknown.token" in missing["settings/effective.toml"]
    assert out.stat().st_mode & 0o777 == 0o600
    assert "MISSING" in capsys.readouterr().out


def test_names_are_replaced_everywhere_by_the_same_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "node.log"
    log.write_text("INFO appended topic=orders user=bob\nINFO directory orders-0 of orders.eu\n")
    with EphemeralBroker() as broker:
        with BlockingKafkaClient(broker.bootstrap_servers) as client:
            for name in ("orders", "orders.eu"):
                client.create_topic(NewTopic(name=name, partitions=1))
            client.commit_offsets("billing", {})
        out = tmp_path / "bundle.tar.gz"
        arguments = ["--output-file", str(out), "--log-file", str(log), "--output", "json"]
        assert broker.http_url is not None
        assert (
            main(["debug", "bundle", "--redact-names", "--server", broker.http_url, *arguments])
            == 0
        )
    found = unpacked(out)
    assert not any(name in text for text in found.values() for name in ("orders", "bob"))
    names = [each["name"] for each in json.loads(found["node/topics.json"])["items"]]
    assert found["log.txt"].splitlines() == [
        f"INFO appended topic={names[0]} user=user-1",
        f"INFO directory {names[0]}-0 of {names[1]}",
    ]
    assert json.loads(capsys.readouterr().out)["are_names_hidden"]


def test_bundle_says_what_it_could_not_get(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nowhere = ["--server", "http://127.0.0.1:1"]
    assert main(["debug", "bundle", *nowhere]) == 1
    (path,) = tmp_path.glob("dragoman-bundle-*.tar.gz")
    found = unpacked(path)
    missing = {each["path"]: each["why"] for each in json.loads(found["missing.json"])}
    assert "connection refused" in missing["node/livez.json"].lower()
    assert json.loads(found["machine.json"])["python"]
    capsys.readouterr()
    # A file that exists is not overwritten.
    assert main(["debug", "bundle", *nowhere, "--output-file", str(path)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert unpacked(path) == found


def test_bundle_of_a_missing_directory_fails(tmp_path: Path) -> None:
    out = tmp_path / "bundle.tar.gz"
    assert main(["debug", "bundle", str(tmp_path / "none"), "--output-file", str(out)]) == 1
    assert "is no directory" in unpacked(out)["missing.json"]


def test_files_are_bounded_and_late_ones_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "BUNDLE_FILE_BYTES_MAX", 100)
    monkeypatch.setattr(collection, "BUNDLE_BYTES_MAX", 150)
    files = Collection()
    files.add("a.txt", b"a" * 200)
    files.add("b.txt", b"b" * 60)
    files.add("c.json", b"[" + b" " * 60 + b"]")
    assert {path: len(data) for path, data in files.files.items()} == {"a.txt": 100, "b.txt": 50}
    assert [each.path for each in files.missing] == ["a.txt", "b.txt", "c.json"]
    late = Collection(seconds_max=0.0)
    late.gather("d.txt", lambda: b"d")
    assert late.files == {}
    assert late.missing[0].why == "the time for the bundle is over"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=abc user=x", "password=(hidden) user=x"),
        ('password = "a b"', 'password = "(hidden)"'),
        ('password = """\na\nb"""\nx = 1', 'password = "(hidden)"\nx = 1'),
        ("password=file:/run/secret", "password=file:/run/secret"),
        ("ssl.key.file=/etc/key.pem", "ssl.key.file=/etc/key.pem"),
        ("postgres://u:p@ss/w@host/db", "postgres://u:(hidden)@host/db"),
        ("http://broker:8080/metrics", "http://broker:8080/metrics"),
        ("?sslmode=require&password=abc&x=1", "?sslmode=require&password=(hidden)&x=1"),
        ('tokens = ["abc", "def"]', "tokens = (hidden)"),
        ('password = { value = "abc" }', "password = (hidden)"),
        (r'"body {\"password\":\"abc\"}"', r'"body {\"password\":\"(hidden)\"}"'),
        ("serve --set sasl.password abc", "serve --set sasl.password abc"),
        ("psql --password abc --x", "psql --password (hidden) --x"),
        ("curl --password-file f", "curl --password-file f"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: (hidden)"),
        ("SCRAM-SHA-256$4096:salt$key:key", "(hidden)"),
        ('dragoman_tokens_total{user="a"} 5', 'dragoman_tokens_total{user="a"} 5'),
        ("jdbc:oracle:thin:scott/abc@//db:1521/x", "jdbc:oracle:thin:scott/(hidden)@//db:1521/x"),
        ("jdbc:sqlserver://h;user=a;password=abc", "jdbc:sqlserver://h;user=a;password=(hidden)"),
        ("db_pass: abc dbpass=abc", "db_pass: (hidden) dbpass=(hidden)"),
        ("passed=3 compass=4", "passed=3 compass=4"),
        ("('authorization', 'Basic dTpw')", "('authorization', (hidden))"),
        ("(b'authorization', b'Basic dTpw')", "(b'authorization', (hidden))"),
        ("Cookie: session=abc; a=b\nX: y", "Cookie: (hidden)\nX: y"),
        ("https://a.blob/x?sv=1&sig=abc&se=2", "https://a.blob/x?sv=1&sig=(hidden)&se=2"),
        ("AccountName=a;AccountKey=abc==", "AccountName=a;AccountKey=(hidden)"),
        ("password: |\n  abc\n  def\nx: 1", "password: (hidden)x: 1"),
        ("<db.password>abc</db.password>", "<db.password>(hidden)</db.password>"),
        ('passwords = ["abc", "d]ef"]', "passwords = (hidden)"),
        ("ALTER ROLE a PASSWORD 'a''b' LOGIN", "ALTER ROLE a PASSWORD (hidden) LOGIN"),
        ("Login(user='a', password=b'abc')", "Login(user='a', password=(hidden))"),
        ("Password('abc')", "Password((hidden))"),
        ("password%3Dabc&x", "password%3D(hidden)&x"),
        ("curl -u alice:abc http://h", "curl -u alice:(hidden) http://h"),
        ("key AKIAABCDEFGHIJKLMNOP", "key (hidden)"),
        (f"https://ghp_{'a1' * 10}@h/x", "https://(hidden)@h/x"),
    ],
)
def test_secrets_are_hidden_and_their_places_are_not(text: str, shown: str) -> None:
    assert secrets.hide_in_text(text) == shown


def test_strings_below_keys_of_secrets_are_hidden() -> None:
    found = secrets.hide_in_json(
        {
            "tokens": 3,
            "signing_secret": True,
            "token": "abc",
            "password_file": "/x",
            "nested": {"secrets": ["a", "env:B"], "dsn": "host=a password=b"},
            "items": [{"name": "sasl.password", "value": "abc"}, {"name": "x", "value": "abc"}],
            "password": {"value": "abc", "length": 3},
            "credentials": {"user": "a", "pass": "abc"},
            "db": {"password": 12345678, "password_count": 2},
            "headers": [["authorization", "Basic abc"], ["host", "h"]],
        }
    )
    assert found == {
        "tokens": 3,
        "signing_secret": True,
        "token": "(hidden)",
        "password_file": "/x",
        "nested": {"secrets": ["(hidden)", "env:B"], "dsn": "host=a password=(hidden)"},
        "items": [{"name": "sasl.password", "value": "(hidden)"}, {"name": "x", "value": "abc"}],
        "password": {"value": "(hidden)", "length": 3},
        "credentials": {"user": "a", "pass": "(hidden)"},
        "db": {"password": "(hidden)", "password_count": 2},
        "headers": [["authorization", "(hidden)"], ["host", "h"]],
    }


def test_a_pipe_in_the_place_of_a_log_is_missing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    files = Collection()
    machine.collect(files, config="", log_file=str(tmp_path / "log"), directory=None)
    assert "log.txt" in [each.path for each in files.missing]


def test_names_of_metrics_and_log_lines_are_found() -> None:
    names = Names()
    names.learn_text('x{topic="a b",group="g"} 1\n{"client":"c1"} INFO user=User:eve topic=__x')
    names.settle()
    text = 'a b, g, c1 and "eve" of __x; groups'
    assert names.replace_in(text) == 'topic-1, group-1, client-1 and "user-1" of __x; groups'


def test_names_are_replaced_as_whole_words_and_the_longest_first() -> None:
    names = Names()
    names.learn_text("".join(f'x{{topic="{each}"}} 1\n' for each in ("a", "a.b", "a.b-c", "d e")))
    names.settle()
    assert names.replace_in("a a.b a.b-c a-0 x.a.b_1 ab /a/ d e,a.b.c") == (
        "topic-1 topic-2 topic-3 topic-1-0 x.topic-2_1 ab /topic-1/ topic-4,topic-2.c"
    )


def test_many_names_in_a_long_text_take_little_work() -> None:
    names = Names()
    names.learn_text("".join(f'x{{topic="orders.{n}.eu"}} 1\n' for n in range(20_000)))
    names.settle()
    text = "size of orders.19999.eu " * 20_000 + "x" * 100_000
    found = secrets.hide_in_text(names.replace_in(text))
    assert found.startswith("size of topic-20000 size")


def test_names_of_captures_are_found() -> None:
    names = Names()
    definition = {
        "name": "shop",
        "definition": {
            "dsn": "host=db dbname=sales user=cdc",
            "topics": {"public.orders": "o-{table}"},
            "tables": ["public.bills"],
        },
    }
    value: Json = {"items": [definition]}
    names.learn_json("node/captures.json", value)
    names.settle()
    shown = json.dumps(names.replace_in_json(value))
    assert not any(each in shown for each in ("shop", "sales", "cdc", "orders", "bills"))
    assert "host=db" in shown


def test_environment_is_that_of_dragoman_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_SECRET", PLANTED[0])
    out = tmp_path / "bundle.tar.gz"
    main(["debug", "bundle", str(tmp_path), "--output-file", str(out)])
    assert PLANTED[0] not in "".join(unpacked(out).values())
    assert os.environ["OTHER_SECRET"] == PLANTED[0]
