"""Goal: options mean what the page says, and a wrong one is refused with its name.

Method: parse texts as Spark hands them over; compare the page's table with the one in the code.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.client.kafka import TlsSettings
from dragoman.errors import ConfigError
from dragoman.spark.options import EARLIEST, LATEST, OPTIONS, Bound, parse, table
from worlds.tls import TlsFiles

ROOT = Path(__file__).parents[3]
GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "orders"}


def test_defaults_are_those_of_the_kafka_source() -> None:
    batch, stream = parse(GIVEN, "batch"), parse(GIVEN, "stream")
    assert (batch.starting.offsets, batch.ending.offsets) == (EARLIEST, LATEST)
    assert stream.starting.offsets == LATEST
    assert batch.fail_on_data_loss
    assert batch.committed_only
    assert not batch.include_headers
    assert batch.max_delay_s == 900


def test_names_are_read_in_any_case_and_with_their_alias() -> None:
    options = parse({"BOOTSTRAP.servers": "h:1", "SUBSCRIBE": "a, b,a"}, "batch")
    assert options.bootstrap == "h:1"
    assert options.topics.names == ("a", "b")


def test_offsets_are_words_numbers_and_times() -> None:
    options = parse(
        {
            **GIVEN,
            "startingOffsets": '{"orders": {"0": 23, "1": -2}}',
            "endingOffsets": "latest",
            "startingTimestamp": "5",
            "endingOffsetsByTimestamp": '{"orders": {"0": 9}}',
        },
        "batch",
    )
    assert options.starting == Bound(timestamp=5, offsets={"orders": {0: 23, 1: -2}})
    assert options.ending == Bound(timestamps={"orders": {0: 9}}, offsets=LATEST)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "a"}, "give kafka.bootstrap.servers, or path"),
        ({"path": "/d", "subscribe": "a", "readMode": "broker"}, "readMode=broker needs kafka"),
        ({"path": "/d"}, "exactly one of subscribe.*got none"),
        ({**GIVEN, "assign": '{"a": [0]}'}, "exactly one of .*got subscribe and assign"),
        ({**GIVEN, "assign": ""}, "exactly one of .*got subscribe and assign"),
        ({"path": "/d", "subscribe": " , "}, "subscribe: expected topics, got ','"),
        ({**GIVEN, "fetchOffset.numRetries": "often"}, "numRetries: expected a number that is not"),
        ({**GIVEN, "startingTimestamp": "-1"}, "startingTimestamp: expected a number that is not"),
        ({**GIVEN, "startingOffset": "earliest"}, "unknown option.*is startingOffsets meant"),
        ({**GIVEN, "startingOffsets": "soon"}, "startingOffsets: expected earliest, latest or"),
        ({**GIVEN, "startingOffsets": '{"a": {"x": 1}}'}, "startingOffsets: expected"),
        ({**GIVEN, "avroSchema": "int"}, "avroSchema is for decode=avro, got ''"),
        ({**GIVEN, "decode": "avro", "valueSchema": "n int"}, "valueSchema is for decode=json"),
        ({**GIVEN, "decode": "avro", "avroFraming": "x"}, "avroFraming: expected confluent or"),
        (
            {**GIVEN, "decode": "avro", "avroSchema": "1", "avroSchemaFile": "2"},
            "give one of avroSchema and avroSchemaFile",
        ),
        ({**GIVEN, "decode": "avro", "avroSchemaFile": "/nowhere"}, "avroSchemaFile: .*No such"),
        (
            {**GIVEN, "decode": "avro", "avroSchemaFile": "/dev/null"},
            "is empty or larger",
        ),
        ({**GIVEN, "decode": "protobuf", "messageName": "M"}, "descriptorFile and messageName"),
        ({**GIVEN, "decode": "avro", "pinSchema": "true"}, "pinSchema needs kafka.boot.* a schema"),
        ({**GIVEN, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger: expected a positive"),
        (
            {**GIVEN, "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
            "expected at most maxOffsetsPerTrigger=5, got 6",
        ),
        ({**GIVEN, "failOnDataLoss": "no"}, "failOnDataLoss: expected true or false, got 'no'"),
        ({**GIVEN, "readMode": "fast"}, "readMode: expected auto, segments or broker"),
        ({**GIVEN, "maxTriggerDelay": "soon"}, "maxTriggerDelay: expected a time"),
        ({**GIVEN, "maxTriggerDelay": "2 weeks"}, "maxTriggerDelay: expected a time"),
        ({**GIVEN, "kafka.security.protocol": "TLS"}, "kafka.security.protocol: expected one of"),
        ({**GIVEN, "kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.jaas.config: expected user"),
        ({**GIVEN, "kafka.ssl.protocol": "TLSv1.3"}, "kafka.ssl.protocol is not supported"),
        ({**GIVEN, "onDecodeError": "deadletter"}, "onDecodeError=deadletter needs deadLetter"),
        ({"path": "/d", "subscribePattern": "("}, "subscribePattern: .* in '\\('"),
        ({"path": "/d", "assign": "[0]"}, "assign: expected JSON"),
    ],
)
def test_wrong_options_are_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(given, "batch")


def test_unused_settings_of_kafka_clients_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parse({**GIVEN, "kafka.fetch.max.bytes": "5"}, "batch")
    assert "kafka.fetch.max.bytes is not used" in caplog.text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("auto.offset.reset", "set startingOffsets to earliest or latest"),
        ("key.deserializer", "keys are read as bytes"),
        ("value.deserializer", "values are read as bytes"),
        ("enable.auto.commit", "commits no offsets"),
        ("interceptor.classes", "may change records"),
    ],
)
def test_settings_that_the_kafka_source_refuses_are_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.{name} is not supported: .*{message}"):
        parse({**GIVEN, f"kafka.{name}": "x"}, "batch")


def test_options_that_change_nothing_are_taken() -> None:
    given = {"useDeprecatedOffsetFetching": "true", "kafka.security.protocol": "plaintext"}
    assert parse({**GIVEN, **given}, "batch") == parse(GIVEN, "batch")


def test_an_end_is_refused_by_streams(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp"):
        with pytest.raises(ConfigError, match=f"{name} is for batches"):
            parse({**GIVEN, name: "latest"}, "stream")
    parse({**GIVEN, "endingTimestamp": "5"}, "stream")
    assert "endingTimestamp is for batches" in caplog.text


@pytest.mark.parametrize(
    ("text", "seconds"), [("1500", 1.5), ("1500ms", 1.5), ("2min", 120), ("1H", 3600), ("0", 0)]
)
def test_times_are_read_as_spark_reads_them(text: str, seconds: float) -> None:
    assert parse({**GIVEN, "maxTriggerDelay": text}, "stream").max_delay_s == seconds


def test_page_has_the_table_of_the_code() -> None:
    page = (ROOT / "docs" / "reference" / "spark.md").read_text()
    assert table() in page, "run `make docs`"
    assert len(OPTIONS) > 30


def test_files_with_schemas_are_read_where_options_are(tmp_path: Path) -> None:
    file = tmp_path / "schema"
    file.write_bytes('"string"é'.encode())
    avro = parse({**GIVEN, "decode": "avro", "avroSchemaFile": str(file)}, "batch")
    assert avro.avro_schema == '"string"é'
    given = {**GIVEN, "decode": "protobuf", "descriptorFile": str(file), "messageName": "M"}
    assert parse(given, "batch").descriptors == file.read_bytes()
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="avroSchemaFile: 'utf-8' codec"):
        parse({**GIVEN, "decode": "avro", "avroSchemaFile": str(file)}, "batch")


# ---- security

JAAS = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" '
    'password="pass\\"word";'
)
SASL = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": JAAS,
}


def test_login_is_that_of_the_jaas_configuration() -> None:
    options = parse({**GIVEN, **SASL}, "batch")
    assert options.tls is None
    assert options.login is not None
    assert options.login.mechanism == "SCRAM-SHA-512"
    assert (options.login.name, options.login.password) == ("alice", 'pass"word')
    assert "word" not in repr(options)


def test_values_of_the_jaas_configuration_need_no_quotes() -> None:
    config = "x.PlainLoginModule required username=alice password=pass-word ;"
    login = parse({**GIVEN, **SASL, "kafka.sasl.jaas.config": config}, "batch").login
    assert login is not None
    assert (login.name, login.password) == ("alice", "pass-word")


def test_token_of_a_login_is_in_a_file() -> None:
    given = {**GIVEN, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}
    name = "kafka.sasl.oauthbearer.token.endpoint.url"
    login = parse({**given, name: "file:///run/token"}, "batch").login
    assert login is not None
    assert (login.mechanism, login.token) == ("OAUTHBEARER", "file:/run/token")
    assert not login.allow_clear_text
    for wrong in ("", "https://issuer.example/token"):
        with pytest.raises(ConfigError, match="expected file:///PATH"):
            parse({**given, name: wrong}, "batch")


def test_tls_has_files_in_pem(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(Path(files.certificate).read_bytes() + Path(files.key).read_bytes())
    given = {
        **GIVEN,
        "kafka.security.protocol": "ssl",
        "kafka.ssl.truststore.location": files.ca,
        "kafka.ssl.keystore.location": str(both),
    }
    options = parse(given, "batch")
    assert options.tls == TlsSettings(ca=files.ca, certificate=str(both))
    assert options.login is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kafka.sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism: expected one of PLAIN"),
        ({"kafka.sasl.jaas.config": "secret words"}, "kafka.sasl.jaas.config: expected"),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "JKS"},
            "truststore.type: expected PEM",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/nowhere/ca"},
            "/nowhere/ca: No such file",
        ),
        (
            {
                "kafka.security.protocol": "SSL",
                "kafka.ssl.endpoint.identification.algorithm": "",
            },
            "expected https",
        ),
    ],
)
def test_bad_security_is_refused_without_its_secrets(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        parse({**GIVEN, **SASL, **changed}, "batch")
    assert "word" not in str(raised.value).replace("password=", "")
