"""Goal: against a node that demands TLS and a login and enforces rules, Spark reads and writes with
the rights of its user, names the missing right, and shows the password nowhere.

Method: the shared session, a broker in this process, passwords as text and as references.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from dragoman.broker.administration import Actor
from dragoman.cli.main import main
from dragoman.client.kafka import (
    BlockingKafkaClient,
    ClientSettings,
    NewRecord,
    NewTopic,
    SaslLogin,
    TlsSettings,
)
from dragoman.net.future import future_of
from dragoman.pipelines.pipeline_file import PipelineFileError, load
from dragoman.pipelines.runner import Run
from dragoman.pipelines.state import StateFolder
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.rules import Pattern, Permission, Rule
from dragoman.spark import readable
from dragoman.spark.security import options_of
from dragoman.spark.sql import Query
from dragoman.spark.tables import create_views, table, topic_names
from dragoman.testing import EphemeralBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
PASSWORDS = {"admin": "admin-Zq81", "job": "job-Zq82", "stranger": "stranger-Zq83"}
ACTOR = Actor(caller=Caller(), protocol="testing")
RECORDS = 40


def _rule(name: str, operation: Operation, resource: Resource, what: str) -> Rule:
    return Rule(f"User:{name}", "*", operation, Permission.ALLOW, resource, Pattern.LITERAL, what)


RULES = [
    # Batches, streams and replays publish under names of these forms.
    *(
        Rule(
            "User:job",
            "*",
            Operation.WRITE,
            Permission.ALLOW,
            Resource.TRANSACTIONAL_ID,
            Pattern.PREFIXED,
            prefix,
        )
        for prefix in ("batch-", "copy", "locked", "replay-")
    ),
    _rule("job", Operation.READ, Resource.TOPIC, "in"),
    _rule("job", Operation.WRITE, Resource.TOPIC, "out"),
    _rule("job", Operation.WRITE, Resource.TOPIC, "__staged_records"),
    _rule("job", Operation.READ, Resource.TOPIC, "out"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    locked = EphemeralBroker(
        storage="directory",
        users=PASSWORDS,
        tls=True,
        settings={"super.users": "User:admin"},
    )
    with locked as running:
        node = running._node
        assert node is not None
        rules = node.broker.access.rules

        async def add() -> None:
            await future_of(rules.add(RULES, ACTOR))

        running._call(add())
        with BlockingKafkaClient(running.bootstrap_servers, _settings(running)) as client:
            for name in ("in", "out", "closed"):
                client.create_topic(NewTopic(name=name, partitions=2))
            records = [NewRecord(value=b"%d" % each) for each in range(RECORDS)]
            client.produce_records("in", records)
        yield running


def _settings(broker: EphemeralBroker) -> ClientSettings:
    login = SaslLogin(name="admin", password=PASSWORDS["admin"])
    return ClientSettings(tls=TlsSettings(ca=broker.ca_file), login=login)


def _options(broker: EphemeralBroker, user: str = "job", password: str = "") -> dict[str, str]:
    login = SaslLogin(name=user, password=password or PASSWORDS[user])
    return {
        "bootstrap": broker.bootstrap_servers,
        **options_of(TlsSettings(ca=broker.ca_file), login),
    }


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.txt"
    path.write_text(PASSWORDS["job"] + "\n")
    return path


@pytest.mark.parametrize("read_mode", ["broker", "auto"])
def test_batch_is_read_with_the_right_to_read(
    spark: SparkSession, broker: EphemeralBroker, password_file: Path, read_mode: str
) -> None:
    options = _options(broker, password=f"file:{password_file}")
    path = broker.data_directory if read_mode == "auto" else ""
    found = table("in", spark=spark, path=path, readMode=read_mode, **options).collect()
    assert sorted(int(row.value) for row in found) == list(range(RECORDS))


def test_batch_is_written_and_the_password_is_in_no_plan(
    spark: SparkSession,
    broker: EphemeralBroker,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    options = _options(broker)
    frame = table("in", spark=spark, **options)
    frame.explain("extended")
    frame.createOrReplaceTempView("secret_in")
    for mode in ("extended", "formatted", "codegen", "cost"):
        for (plan,) in spark.sql(f"explain {mode} select * from secret_in").collect():
            assert PASSWORDS["job"] not in plan
    writer = frame.select("value").write.format("dragoman").mode("append")
    given = {**options, "kafka.bootstrap.servers": options["bootstrap"], "topic": "out"}
    del given["bootstrap"]
    writer.options(**given).save()
    assert table("out", spark=spark, **options).count() == RECORDS

    query = (
        table("in", spark=spark, stream=True, **options)
        .select("value")
        .writeStream.format("dragoman")
        .options(**given)
        .option("txnAppId", "copy")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert table("out", spark=spark, **options).count() == 2 * RECORDS
    assert PASSWORDS["job"] not in str(query.recentProgress)
    files = [each for each in (tmp_path / "checkpoint").rglob("*") if each.is_file()]
    assert files
    for each in files:
        assert PASSWORDS["job"].encode() not in each.read_bytes(), each
    shown = capfd.readouterr()
    assert PASSWORDS["job"] not in shown.out + shown.err


@pytest.mark.parametrize(
    ("user", "topic", "problem"),
    [
        ("stranger", "in", "'in'"),
        ("job", "closed", "'closed'"),
        ("job", "absent", "'absent'"),
    ],
)
def test_topic_without_a_right_is_like_an_absent_one(
    spark: SparkSession, broker: EphemeralBroker, user: str, topic: str, problem: str
) -> None:
    with pytest.raises(PySparkException) as error:
        table(topic, spark=spark, **_options(broker, user)).collect()
    assert problem in readable(error.value)
    assert PASSWORDS[user] not in str(error.value)


@pytest.mark.parametrize("topic", ["in", "closed"])
def test_writing_without_the_right_names_it(
    spark: SparkSession, broker: EphemeralBroker, topic: str
) -> None:
    options = _options(broker)
    given = {**options, "kafka.bootstrap.servers": options["bootstrap"], "topic": topic}
    del given["bootstrap"]
    writer = spark.sql("select 'x' as value").write.format("dragoman").mode("append")
    with pytest.raises(PySparkException) as error:
        writer.options(**given).save()
    assert f"'{topic}'" in readable(error.value)
    assert PASSWORDS["job"] not in str(error.value)


def test_pinned_schema_without_the_right_names_it(
    spark: SparkSession, broker: EphemeralBroker
) -> None:
    with pytest.raises(PySparkException) as error:
        table("in", spark=spark, decode="json", **_options(broker)).collect()
    assert "`describe_configs`" in readable(error.value)
    given = table("in", spark=spark, decode="json", valueSchema="a int", **_options(broker))
    assert given.schema["value"].dataType.simpleString() == "struct<a:int>"


def test_wrong_password_is_an_error_of_the_login(
    spark: SparkSession, broker: EphemeralBroker
) -> None:
    with pytest.raises(PySparkException) as error:
        table("in", spark=spark, **_options(broker, password="guessed-Zq84")).collect()
    assert "SASL_AUTHENTICATION_FAILED" in readable(error.value)
    assert "guessed-Zq84" not in str(error.value)


def test_topics_that_the_user_sees_become_views(
    spark: SparkSession, broker: EphemeralBroker
) -> None:
    options = _options(broker)
    assert topic_names(**options) == ["in", "out"]
    assert create_views(["in"], spark=spark, **options) == ["in"]
    assert spark.sql("select count(*) from `in`").collect()[0][0] == RECORDS


def test_queries_log_in(spark: SparkSession, broker: EphemeralBroker, password_file: Path) -> None:
    options = _options(broker, password=f"file:{password_file}")
    bootstrap = options.pop("bootstrap")
    query = Query("select count(*) as n from `in`", bootstrap=bootstrap, options=options)
    assert list(query.dictionaries()) == [{"n": RECORDS}]


def test_command_takes_the_login_of_options_and_environment(
    spark: SparkSession,
    broker: EphemeralBroker,
    password_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address = ("--bootstrap", broker.bootstrap_servers)
    query = ("sql", "select count(*) as n from `in`", *address, "--output", "csv")
    login = ("--user", "job", "--password-file", str(password_file))
    assert main([*query, *login, "--ca-file", broker.ca_file]) == 0
    assert capsys.readouterr().out == f"n\n{RECORDS}\n"
    assert main([*query, "--user", "job", "--ca-file", broker.ca_file]) == 2
    assert "--user needs --password-file" in capsys.readouterr().err
    monkeypatch.setenv("DRAGOMAN_USER", "job")
    monkeypatch.setenv("DRAGOMAN_PASSWORD_FILE", str(password_file))
    monkeypatch.setenv("DRAGOMAN_CA_FILE", broker.ca_file)
    assert main([*query, "--tls"]) == 0
    assert capsys.readouterr().out == f"n\n{RECORDS}\n"


PIPELINE = """
name = "locked"
bootstrap = "{bootstrap}"
trigger = "once"

[security]
ca = "{ca}"
user = "{user}"
password = "file:{user}.txt"

[sources.a]
type = "topic"
topic = "in"

[sinks.b]
type = "topic"
from = "a"
topic = "out"
options = {{ txnAppId = "locked" }}
"""
JOB = """
[jobs.p]
type = "profile"
topic = "in"
folder = "profile"

[jobs.r]
type = "replay"
topic = "in"
to = "out"
partitions = "key"

[jobs.t]
type = "tier"
topic = "in"
root = "tier"
until = "latest"
"""


def _pipeline(broker: EphemeralBroker, directory: Path, user: str) -> Run:
    (directory / f"{user}.txt").write_text(PASSWORDS[user])
    file = directory / "pipeline.toml"
    text = PIPELINE.format(bootstrap=broker.bootstrap_servers, ca=broker.ca_file, user=user)
    file.write_text(text + JOB)
    return Run(load(str(file)), StateFolder(directory / "state", "locked"))


def test_pipeline_and_its_jobs_log_in(
    spark: SparkSession, broker: EphemeralBroker, tmp_path: Path
) -> None:
    before = table("out", spark=spark, **_options(broker)).count()
    _pipeline(broker, tmp_path, "job").run()
    assert table("out", spark=spark, **_options(broker)).count() == before + 2 * RECORDS
    assert (tmp_path / "profile" / "profile.json").exists()
    for each in tmp_path.rglob("*"):
        if each.is_file() and each.name != "job.txt":
            assert PASSWORDS["job"].encode() not in each.read_bytes(), each


def test_job_takes_the_login_of_options_and_environment(
    spark: SparkSession,
    broker: EphemeralBroker,
    password_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    common = ("--bootstrap", broker.bootstrap_servers, "--state", str(tmp_path / "state"))
    job = ("pipeline", "run", "profile", "--topic", "in", "--folder", str(tmp_path / "p"), *common)
    login = ("--user", "job", "--password-file", str(password_file))
    assert main([*job, *login, "--ca-file", broker.ca_file]) == 0, capsys.readouterr().err
    assert main([*job, "--user", "job", "--ca-file", broker.ca_file]) == 2
    monkeypatch.setenv("DRAGOMAN_CA_FILE", broker.ca_file)
    monkeypatch.setenv("DRAGOMAN_USER", "job")
    monkeypatch.setenv("DRAGOMAN_PASSWORD_FILE", str(password_file))
    assert main([*job, "--tls"]) == 0, capsys.readouterr().err


def test_options_of_the_command_replace_the_login_of_the_file(
    spark: SparkSession,
    broker: EphemeralBroker,
    password_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _pipeline(broker, tmp_path, "stranger")
    file = tmp_path / "pipeline.toml"
    check = ("pipeline", "run", str(file), "--check", "--state", str(tmp_path / "state"))
    assert main(check) == 2
    assert "'stranger' lacks `describe`" in capsys.readouterr().err
    login = ("--user", "job", "--password-file", str(password_file))
    assert main([*check, *login, "--ca-file", broker.ca_file]) == 0, capsys.readouterr().err
    # The authorities are those of the environment where the file names none.
    (tmp_path / "job.txt").write_text(PASSWORDS["job"])
    own = file.read_text().replace(f'ca = "{broker.ca_file}"\n', "").replace("stranger", "job")
    file.write_text(own)
    monkeypatch.setenv("DRAGOMAN_CA_FILE", broker.ca_file)
    assert main(check) == 0, capsys.readouterr().err


def test_pipeline_without_rights_says_what_its_user_lacks(
    broker: EphemeralBroker, tmp_path: Path
) -> None:
    with pytest.raises(PipelineFileError, match=r"no topic 'in'.*'stranger' lacks `describe`"):
        _pipeline(broker, tmp_path, "stranger").check()
