"""Goal: a pipeline logs in at its own broker, at no other, and its file contains no password."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.cli.main import main
from dragoman.client.kafka import SaslLogin, TlsSettings
from dragoman.pipelines.brokers import with_bootstrap, with_security
from dragoman.pipelines.definition import Definition
from dragoman.pipelines.jobs import replay
from dragoman.pipelines.jobs.replay import TopicBatches
from dragoman.pipelines.pipeline_file import PipelineFileError, load
from dragoman.spark.options import security_of
from dragoman.spark.security import options_of
from worlds.tls import TlsFiles

FILE = """
name = "p"
bootstrap = "own:1"
{security}
[sources.a]
type = "topic"
topic = "a"
{source}
[sinks.b]
type = "topic"
from = "a"
topic = "b"
{sink}
[jobs.c]
type = "replay"
topic = "a"
to = "c"
{job}
[jobs.d]
type = "profile"
topic = "a"
"""
SECURITY = """
[security]
protocol = "SASL_PLAINTEXT"
user = "shop"
password = "file:shop.txt"
"""


def _loaded(directory: Path, security: str = SECURITY, **lines: str) -> Definition:
    file = directory / "p.toml"
    parts = {"source": "", "sink": "", "job": "", **lines}
    file.write_text(FILE.format(security=security, **parts))
    return load(str(file))


def _options(definition: Definition) -> dict[str, dict[str, str]]:
    """The options for security of each part."""
    source: Any = definition.sources["a"]
    sink: Any = definition.sinks["b"]
    job = definition.jobs["c"].options
    profile = definition.jobs["d"].options
    found = {
        "source": source.options,
        "sink": sink.options,
        "replay from": job.source,
        "replay to": job.sink,
        "profile": profile.source,
    }
    return {name: options for name, options in found.items() if options}


def test_login_is_in_every_part_of_the_broker(tmp_path: Path) -> None:
    found = _options(with_security(_loaded(tmp_path)))
    assert list(found) == ["source", "sink", "replay from", "replay to", "profile"]
    expected = SaslLogin(
        name="shop", password=f"file:{tmp_path / 'shop.txt'}", allow_clear_text=True
    )
    for options in found.values():
        assert security_of(options) == (None, expected)


@pytest.mark.parametrize(
    ("lines", "without"),
    [
        ({"source": 'bootstrap = "other:1"'}, {"source"}),
        ({"sink": 'bootstrap = "other:1"'}, {"sink"}),
        ({"job": 'bootstrap = "other:1"'}, {"replay from", "replay to"}),
        ({"job": 'source_bootstrap = "other:1"'}, {"replay from"}),
    ],
)
def test_login_is_not_sent_to_another_cluster(
    tmp_path: Path, lines: dict[str, str], without: set[str]
) -> None:
    all_parts = _options(with_security(_loaded(tmp_path))).keys()
    found = _options(with_security(_loaded(tmp_path, **lines)))
    assert all_parts - found.keys() == without


def test_options_of_a_part_go_before(tmp_path: Path) -> None:
    own = 'options = { "kafka.security.protocol" = "PLAINTEXT", "kafka.client.id" = "x" }'
    found = _options(with_security(_loaded(tmp_path, source=own)))
    assert found["source"] == {"kafka.security.protocol": "PLAINTEXT", "kafka.client.id": "x"}
    assert "kafka.sasl.jaas.config" in found["sink"]


def test_login_goes_along_to_the_address_of_the_command_line(tmp_path: Path) -> None:
    moved = with_security(with_bootstrap(_loaded(tmp_path), "given:1"))
    assert len(_options(moved)) == 5


def test_file_without_the_table_has_no_login(tmp_path: Path) -> None:
    definition = _loaded(tmp_path, security="")
    assert with_security(definition) is definition


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ('user = "a"\npassword = "plain"', "expected file:PATH or env:NAME"),
        ('user = "a"', "user and password are needed for SASL_SSL"),
        ('password = "env:A"', "user and password are needed for SASL_SSL"),
        ('ca = "x"', "user and password are needed for SASL_SSL"),
        ('protocol = "SSL"\nuser = "a"\npassword = "env:A"', "user and password are for SASL_SSL"),
        ('protocol = "SASL_PLAINTEXT"\nca = "x"', "ca, certificate and key are for SSL"),
        ('protocol = "SSL"\nkey = "x"', "key needs certificate"),
        ('protocol = "TLS"', "security"),
        ('usr = "a"', "is 'user' meant?"),
        ('user = "a"\npassword = "env:A"\nmechanism = "GSSAPI"', "mechanism"),
    ],
)
def test_mistakes_are_named_without_the_secret(tmp_path: Path, keys: str, problem: str) -> None:
    with pytest.raises(PipelineFileError) as error:
        _loaded(tmp_path, security=f"[security]\n{keys}")
    assert problem in str(error.value)
    assert "plain" not in str(error.value).replace("SASL_PLAINTEXT", "")


def test_paths_begin_beside_the_file(tmp_path: Path) -> None:
    keys = _loaded(
        tmp_path,
        security='[security]\nca = "ca.pem"\nuser = "a"\npassword = "file:a.txt"',
    ).security
    assert keys is not None
    assert (keys.ca, keys.password) == (f"{tmp_path}/ca.pem", f"file:{tmp_path}/a.txt")


@pytest.mark.parametrize("text", ["simple", 'with "quotes"', "back\\slash", "semi;colon x=y"])
def test_options_are_read_as_they_were_meant(tmp_path: Path, text: str) -> None:
    tls_files = TlsFiles(tmp_path)
    tls = TlsSettings(ca=tls_files.ca, certificate=tls_files.certificate, key=tls_files.key)
    login = SaslLogin(mechanism="SCRAM-SHA-512", name=text, password=text)
    assert security_of(options_of(tls, login)) == (tls, login)
    assert security_of(options_of(tls, None)) == (tls, None)
    assert security_of(options_of(None, None)) == (None, None)


def test_pipelines_in_python_have_the_same_keys(tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text(
        "from dragoman.pipelines import pipeline, sink, source\n"
        "pipeline(name='p', security={'user': 'a', 'password': 'env:A'})\n"
        "@source(type='topic', topic='a')\n"
        "def a(records):\n    return records\n"
        "@sink(type='topic', topic='b')\n"
        "def b(a):\n    return a\n"
    )
    keys = load(str(file)).security
    assert keys is not None
    assert (keys.protocol, keys.user, keys.password) == ("SASL_SSL", "a", "env:A")


@pytest.mark.parametrize(
    ("password", "is_refused"),
    [('"x-Zq85"', True), ("x-Zq85", True), ('"file:/absent"', False), ("env:ABSENT", False)],
)
def test_passwords_in_arguments_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], password: str, *, is_refused: bool
) -> None:
    config = f"kafka.sasl.jaas.config=required username=a password={password};"
    state = ("--state", str(tmp_path), "--trigger", "never")
    assert main(["pipeline", "run", "replay", "--to", "t", "--sink", config, *state]) == 2
    said = capsys.readouterr().err
    assert ("no passwords in arguments" in said) == is_refused
    assert "x-Zq85" not in said


def test_plan_that_a_replay_keeps_has_no_options_of_clients(tmp_path: Path) -> None:
    options = replay.Options(
        to="t",
        table="a",
        checkpoint=str(tmp_path),
        source={"kafka.sasl.jaas.config": "source-Zq86"},
        sink={"kafka.sasl.jaas.config": "sink-Zq86"},
    )
    batches = TopicBatches(topic_id="", ranges={0: (0, 1)}, records=1)
    replay._save(options, replay.Plan(writer_id="w", options=options, batches=batches))
    (kept,) = tmp_path.iterdir()
    assert b"Zq86" not in kept.read_bytes()
    assert replay._planned(options).options == options
