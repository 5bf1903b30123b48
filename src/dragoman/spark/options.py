"""The options of the source and the sink `dragoman`: names, defaults, meaning, and their parsing.

Names are those of Spark's Kafka source and sink, so a job migrates by changing one word; a few are
specific to Dragoman. Spark passes options as text, and their names are case-insensitive.

Some settings of Kafka's clients (`kafka.…`) are refused, as by Spark's Kafka connector: a job that
sets one expects behaviour that neither format has. Other unused client settings tune a client that
Dragoman does not run; a warning names them.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from dragoman.client.kafka import SaslLogin, TlsSettings
from dragoman.errors import ConfigError
from dragoman.limits import KAFKA_CLIENT_BATCH_BYTES, SPARK_SCHEMA_BYTES_MAX
from dragoman.log.compression import Codec, codec_by_name
from dragoman.spark.security import Security, parse_security

log = logging.getLogger("dragoman.spark")

EARLIEST, LATEST = -2, -1
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
Mode: TypeAlias = Literal["batch", "stream"]


class Option(NamedTuple):
    name: str
    default: str
    meaning: str


_SECURITY_OPTIONS = (
    Option("kafka.security.protocol", "PLAINTEXT", "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`"),
    Option("kafka.ssl.truststore.location", "", "file in PEM with the authorities that brokers' certificates are checked with, on every machine; by default those of the machine"),
    Option("kafka.ssl.truststore.type", "PEM", "`PEM`; key stores of Java are refused"),
    Option("kafka.ssl.keystore.location", "", "file in PEM with a certificate and its key, on every machine, for brokers that ask for one"),
    Option("kafka.ssl.keystore.type", "PEM", "`PEM`"),
    Option("kafka.ssl.key.location", "", "the key of that certificate, where it has a file of its own; the name is librdkafka's"),
    Option("kafka.ssl.endpoint.identification.algorithm", "https", "`https`: the broker's certificate must have its host name"),
    Option("kafka.sasl.mechanism", "SCRAM-SHA-256", "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`"),
    Option("kafka.sasl.oauthbearer.token.endpoint.url", "", "with `OAUTHBEARER`: `file:///PATH` of a token, which is read at each login"),
    Option("kafka.sasl.jaas.config", "", 'with `username="…"` and `password="…"`; a password such as `file:/run/secrets/spark` or `env:NAME` is read where it is used and appears in no plan'),
)  # fmt: skip
OPTIONS = (
    Option("kafka.bootstrap.servers", "", "brokers as `HOST:PORT`, separated by commas; also `bootstrap.servers`"),
    Option("path", "", "a broker's data directory; needs no broker when it is given alone"),
    Option("subscribe", "", "topics, separated by commas; exactly one of this and the next two"),
    Option("subscribePattern", "", "regular expression that is searched for in topic names; `^orders$` matches a whole name"),
    Option("assign", "", 'partitions as JSON: `{"orders": [0, 1]}`'),
    Option("startingOffsets", "batch: earliest, stream: latest", "`earliest`, `latest`, or JSON: `{\"orders\": {\"0\": 23}}`; -2 earliest, -1 latest"),
    Option("endingOffsets", "latest", "batch only; same form as `startingOffsets`"),
    Option("startingTimestamp", "", "milliseconds since 1970 for all partitions; takes precedence over the options by partition"),
    Option("endingTimestamp", "", "batch only; same form as `startingTimestamp`"),
    Option("startingOffsetsByTimestamp", "", "milliseconds since 1970 by partition, as JSON; takes precedence over `startingOffsets`"),
    Option("endingOffsetsByTimestamp", "", "batch only; same form as `startingOffsetsByTimestamp`"),
    Option("startingOffsetsByTimestampStrategy", "error", "for a partition without a record at or after the starting time: `error`, or `latest` to start at its end"),
    Option("failOnDataLoss", "true", "fail when records, or a topic, were deleted before they were read; a topic that was created again always fails"),
    Option("maxOffsetsPerTrigger", "", "maximum number of records in one micro-batch, over all partitions"),
    Option("minOffsetsPerTrigger", "", "number of records to wait for before a micro-batch"),
    Option("maxTriggerDelay", "15m", "maximum wait for `minOffsetsPerTrigger`"),
    Option("maxBytesPerTrigger", "", "maximum number of bytes of the log in one micro-batch"),
    Option("minPartitions", "", "minimum number of Spark partitions: large ranges are split"),
    Option("maxRecordsPerPartition", "", "maximum number of offsets in one Spark partition"),
    Option("includeHeaders", "false", "adds the column `headers`"),
    Option("columns", "", "columns to read, separated by commas; a schema does the same"),
    Option("readMode", "auto", "`segments`: only files; `broker`: no files; `auto`: files where they are visible"),
    Option("pushdown", "auto", "apply filters in the source: `auto` when the session has `spark.sql.python.filterPushdown.enabled`; `true` fails without that setting; `false` never"),
    Option("onIncomplete", "warn", "for `path` alone, when the directory is in use or was not stopped cleanly: `warn` or `fail`"),
    Option("pinSeconds", "900", "how long planned files are kept from deletion after their last use"),
    Option("kafka.isolation.level", "read_committed", "`read_committed` or `read_uncommitted`"),
    Option("kafka.group.id", "", "a group that a stream commits its progress to, which makes its lag visible"),
    Option("groupIdPrefix", "spark-dragoman-source", "accepted for jobs of the Kafka source and ignored: there is no hidden group"),
    Option("kafka.client.id", "dragoman-spark", "name of this reader in the broker's log"),
    Option("kafka.request.timeout.ms", "30000", "timeout of one request"),
    Option("kafkaConsumer.pollTimeoutMs", "120000", "timeout for data to arrive, with all retries"),
    Option("fetchOffset.numRetries", "3", "retries of a stream when the log seems to end before the stream's offset"),
    Option("fetchOffset.retryIntervalMs", "10", "pause before such a retry, and before the first retry of a request"),
    Option("useDeprecatedOffsetFetching", "", "accepted for jobs of the Kafka source and ignored: offsets always come from the brokers"),
    Option("decode", "", "how the column `value` is decoded: `string`, `json`, `avro` or `protobuf`"),
    Option("valueSchema", "", "fields for `decode=json`, as DDL; by default those pinned in the topic's configuration, else inferred and pinned"),
    Option("avroSchema", "", "the writer's schema for `decode=avro`, as JSON; by default the pinned one"),
    Option("avroSchemaFile", "", "a file with the writer's schema, read by the driver"),
    Option("avroFraming", "", "`confluent`: skips a leading zero byte and schema id; `single-object`: requires the schema's fingerprint at the beginning"),
    Option("descriptorFile", "", "`FileDescriptorSet` for `decode=protobuf`, read by the driver: `protoc --include_imports --descriptor_set_out=FILE`; by default the pinned one"),
    Option("messageName", "", "the message in `descriptorFile`, with its package where the name is ambiguous"),
    Option("emit.default.values", "false", "Protobuf fields without presence that have their default: `true` emits the default, `false` null"),
    Option("upcast.unsigned.ints", "false", "`true`: `uint32` becomes `bigint` and `uint64` `decimal(20,0)`; `false`: large values become negative"),
    Option("pinSchema", "false", "`true`: store the schema of these options in the topic's configuration, replacing the pinned one"),
    Option("onDecodeError", "fail", "for a value that does not decode: `fail` or `deadletter`"),
    Option("deadLetterTopic", "", "the topic for records that do not decode; needs a broker"),
    *_SECURITY_OPTIONS,
)  # fmt: skip
SINK_OPTIONS = (
    Option("kafka.bootstrap.servers", "", "brokers as `HOST:PORT`, separated by commas; also `bootstrap.servers`"),
    Option("topic", "", "the topic for all rows; without it, the column `topic` names the topic of each row"),
    Option("txnAppId", "", "streams: a name that identifies the query instead of its id; refused when another query has used it"),
    Option("kafka.compression.type", "none", "`none`, `gzip`, `snappy`, `lz4` or `zstd`"),
    Option("kafka.batch.size", str(KAFKA_CLIENT_BATCH_BYTES), "bytes of records in one batch, before compression"),
    Option("kafka.client.id", "dragoman-spark", "name of this writer in the broker's log"),
    Option("kafka.request.timeout.ms", "30000", "timeout of one request"),
    Option("kafka.delivery.timeout.ms", "120000", "timeout for staging a batch, and for publishing, with all retries"),
    *_SECURITY_OPTIONS,
)  # fmt: skip
#: Options that only apply with one value of `decode`.
_DECODE_OF = {
    "valueSchema": "json",
    "avroSchema": "avro",
    "avroSchemaFile": "avro",
    "avroFraming": "avro",
    "descriptorFile": "protobuf",
    "messageName": "protobuf",
    "emit.default.values": "protobuf",
    "upcast.unsigned.ints": "protobuf",
}
#: Units of time as Spark parses them; a bare number is in milliseconds.
_SECONDS = {
    "us": 1e-6,
    "": 0.001,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_BATCH_ONLY = ("endingOffsets", "endingOffsetsByTimestamp")
#: Spark passes its own write options to the sink as well. As in Spark's Kafka sink,
#: `includeHeaders` has no effect: headers are written if a column has that name.
_ACCEPTED_BY_SINK = frozenset(
    {"checkpointlocation", "path", "queryname", "outputmode", "includeheaders"}
)
_BATCH_BYTES_MIN = 1024
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: By refused setting, what to do instead.
_REFUSED_BY_SOURCE: Mapping[str, str] = {
    "kafka.auto.offset.reset": (
        "set startingOffsets to earliest or latest; a source tracks its own offsets and does not "
        "use those of a group"
    ),
    "kafka.key.deserializer": "keys are read as bytes; deserialize them with DataFrame operations",
    "kafka.value.deserializer": (
        "values are read as bytes; deserialize them with DataFrame operations or the option decode"
    ),
    "kafka.enable.auto.commit": "a source commits no offsets of its own accord",
    "kafka.interceptor.classes": "an interceptor may change records, so none is run",
}
_REFUSED_BY_SINK: Mapping[str, str] = {
    "kafka.key.serializer": "keys are written as bytes; serialize them with DataFrame operations",
    "kafka.value.serializer": (
        "values are written as bytes; serialize them with DataFrame operations"
    ),
}
_SECURITY = ("kafka.sasl.", "kafka.ssl.", "kafka.security.")


def table() -> str:
    """The options of the source as Markdown, for docs/reference/spark.md."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for each in OPTIONS:
        shown = f"`{each.default}`" if each.default and " " not in each.default else each.default
        rows.append(f"| `{each.name}` | {shown} | {each.meaning} |")
    return "\n".join(rows)


def security_of(given: Mapping[str, str]) -> Security:
    """The TLS and the login of a source's or a sink's options. Raises `ConfigError`."""
    named = {name.lower(): value for name, value in given.items()}
    defaults = {each.name: each.default for each in _SECURITY_OPTIONS}
    return parse_security(lambda name: named.get(name.lower(), defaults[name]).strip())


class Bound(msgspec.Struct, frozen=True):
    """Where a read begins or ends. The first field that is set applies."""

    timestamp: int | None = None
    timestamps: dict[str, dict[int, int]] | None = None
    offsets: int | dict[str, dict[int, int]] = LATEST


class Topics(msgspec.Struct, frozen=True):
    """The topics to read. Exactly one field is set."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    partitions: dict[str, tuple[int, ...]] = {}

    def describe(self) -> str:
        return self.pattern or ", ".join(self.names or self.partitions)


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    bootstrap: str
    path: str
    topics: Topics
    starting: Bound
    ending: Bound
    is_late_start_allowed: bool
    fail_on_data_loss: bool
    max_offsets: int | None
    min_offsets: int | None
    max_delay_s: float
    max_bytes: int | None
    min_partitions: int | None
    max_records: int | None
    include_headers: bool
    columns: tuple[str, ...]
    #: auto, segments or broker
    read_mode: str
    #: auto, true or false
    pushdown: str
    fail_on_incomplete: bool
    pin_s: int
    committed_only: bool
    group_id: str
    client_id: str
    request_timeout_s: float
    poll_timeout_s: float
    end_retries: int
    retry_pause_s: float
    #: Empty: values stay bytes.
    decode: str
    value_schema: str
    #: JSON. Empty: the pinned schema.
    avro_schema: str
    avro_framing: str
    #: The content of `descriptorFile`. Empty: the pinned descriptors.
    descriptors: bytes
    message_name: str
    emit_defaults: bool
    upcast_unsigned: bool
    pin_schema: bool
    #: Empty: a value that does not decode fails the read.
    dead_letter_topic: str
    tls: TlsSettings | None
    login: SaslLogin | None


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    bootstrap: str
    #: Empty: each row names its topic.
    topic: str
    #: Empty: the id of the query.
    writer_id: str
    codec: Codec
    batch_bytes: int
    client_id: str
    request_timeout_s: float
    delivery_timeout_s: float
    tls: TlsSettings | None
    login: SaslLogin | None


def parse(given: Mapping[str, str], mode: Mode) -> SourceOptions:
    """Raises `ConfigError` that names the option, the expected values and the value given."""
    parser = _Parser(given, OPTIONS, _REFUSED_BY_SOURCE, "source")
    bootstrap = parser.text("kafka.bootstrap.servers")
    path = parser.text("path")
    read_mode = parser.choice("readMode", ("auto", "segments", "broker"))
    if not bootstrap and not path:
        raise ConfigError("give kafka.bootstrap.servers, or path for a data directory")
    if read_mode == "broker" and not bootstrap:
        raise ConfigError("readMode=broker needs kafka.bootstrap.servers")
    if mode == "stream":
        parser.check_stream()
    security = parse_security(parser.text)
    start_default = EARLIEST if mode == "batch" else LATEST
    return SourceOptions(
        bootstrap=bootstrap,
        path=path,
        topics=parser.topics(),
        starting=parser.bound("starting", start_default),
        ending=parser.bound("ending", LATEST),
        is_late_start_allowed=parser.choice(
            "startingOffsetsByTimestampStrategy", ("error", "latest")
        )
        == "latest",
        fail_on_data_loss=parser.flag("failOnDataLoss"),
        max_offsets=parser.count("maxOffsetsPerTrigger"),
        min_offsets=parser.min_offsets(),
        max_delay_s=parser.duration_s("maxTriggerDelay"),
        max_bytes=parser.count("maxBytesPerTrigger"),
        min_partitions=parser.count("minPartitions"),
        max_records=parser.count("maxRecordsPerPartition"),
        include_headers=parser.flag("includeHeaders"),
        columns=parser.names("columns"),
        read_mode=read_mode,
        pushdown=parser.choice("pushdown", ("auto", "true", "false")),
        fail_on_incomplete=parser.choice("onIncomplete", ("warn", "fail")) == "fail",
        pin_s=parser.number("pinSeconds"),
        committed_only=parser.choice(
            "kafka.isolation.level", ("read_committed", "read_uncommitted")
        )
        == "read_committed",
        group_id=parser.text("kafka.group.id"),
        client_id=parser.text("kafka.client.id"),
        request_timeout_s=parser.number("kafka.request.timeout.ms") / 1000,
        poll_timeout_s=parser.number("kafkaConsumer.pollTimeoutMs") / 1000,
        end_retries=parser.number("fetchOffset.numRetries", minimum=0),
        retry_pause_s=parser.number("fetchOffset.retryIntervalMs", minimum=0) / 1000,
        decode=parser.decode(),
        value_schema=parser.text("valueSchema"),
        avro_schema=parser.text("avroSchema") or parser.text_of("avroSchemaFile"),
        avro_framing=parser.choice("avroFraming", ("", "confluent", "single-object")),
        descriptors=parser.file("descriptorFile"),
        message_name=parser.text("messageName"),
        emit_defaults=parser.flag("emit.default.values"),
        upcast_unsigned=parser.flag("upcast.unsigned.ints"),
        pin_schema=parser.pin_schema(bootstrap),
        dead_letter_topic=parser.dead_letter_topic(bootstrap),
        tls=security.tls,
        login=security.login,
    )


def parse_sink(given: Mapping[str, str]) -> SinkOptions:
    """Raises `ConfigError` that names the option, the expected values and the value given."""
    parser = _Parser(given, SINK_OPTIONS, _REFUSED_BY_SINK, "sink", accepted=_ACCEPTED_BY_SINK)
    bootstrap = parser.text("kafka.bootstrap.servers")
    if not bootstrap:
        raise ConfigError("give kafka.bootstrap.servers")
    security = parse_security(parser.text)
    return SinkOptions(
        bootstrap=bootstrap,
        topic=parser.text("topic"),
        writer_id=parser.text("txnAppId"),
        codec=codec_by_name(parser.choice("kafka.compression.type", _CODECS)),
        batch_bytes=parser.number("kafka.batch.size", _BATCH_BYTES_MIN),
        client_id=parser.text("kafka.client.id"),
        request_timeout_s=parser.number("kafka.request.timeout.ms") / 1000,
        delivery_timeout_s=parser.number("kafka.delivery.timeout.ms") / 1000,
        tls=security.tls,
        login=security.login,
    )


class _Parser:
    """Parses options by name; every error names the option."""

    def __init__(
        self,
        given: Mapping[str, str],
        known: Sequence[Option],
        refused: Mapping[str, str],
        format_: Literal["source", "sink"],
        accepted: Collection[str] = (),
    ) -> None:
        """`refused` maps client settings to what to do instead; `accepted` names are ignored."""
        self._given = {name.lower(): value for name, value in given.items()}
        self._known = {option.name.lower(): option for option in known}
        if alias := self._given.pop("bootstrap.servers", ""):
            self._given.setdefault("kafka.bootstrap.servers", alias)
        for name in self._given:
            if name in self._known or name in accepted:
                continue
            if not _is_client_setting(name, refused, format_):
                near = difflib.get_close_matches(name, self._known, n=1)
                hint = f"; is {self._known[near[0]].name} meant?" if near else ""
                raise ConfigError(f"unknown option {name!r}{hint}")

    def text(self, name: str) -> str:
        return self._given.get(name.lower(), self._known[name.lower()].default).strip()

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.text(name).split(",") if part.strip())

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.text(name).lower()
        if value not in choices:
            *others, last = filter(None, choices)
            expected = f"{', '.join(others)} or {last}"
            raise ConfigError(f"{name}: expected {expected}, got {value!r}")
        return value

    def flag(self, name: str) -> bool:
        value = self.text(name).lower()
        if value not in ("true", "false"):
            raise ConfigError(f"{name}: expected true or false, got {value!r}")
        return value == "true"

    def count(self, name: str, minimum: int = 1) -> int | None:
        """None if the option is not given and has no default."""
        return self.number(name, minimum) if self.text(name) else None

    def number(self, name: str, minimum: int = 1) -> int:
        value = self.text(name)
        if not (value.isascii() and value.isdigit() and int(value) >= minimum):
            words = {0: "a number that is not negative", 1: "a positive number"}
            expected = words.get(minimum, f"a number of at least {minimum}")
            raise ConfigError(f"{name}: expected {expected}, got {value!r}")
        return int(value)

    def duration_s(self, name: str) -> float:
        value = self.text(name)
        found = re.fullmatch(r"([0-9]+)([a-z]*)", value.lower())
        if found is None or found[2] not in _SECONDS:
            raise ConfigError(f"{name}: expected a time such as 30s or 15m, got {value!r}")
        return int(found[1]) * _SECONDS[found[2]]

    def check_stream(self) -> None:
        for name in _BATCH_ONLY:
            if name.lower() in self._given:
                raise ConfigError(f"{name} is for batches: a stream does not end")
        if self.text("endingTimestamp"):
            # Spark's Kafka source ignores it, so a job that sets it must run.
            log.warning("endingTimestamp is for batches: a stream does not end")

    def min_offsets(self) -> int | None:
        least, most = self.count("minOffsetsPerTrigger"), self.count("maxOffsetsPerTrigger")
        if least is not None and most is not None and least > most:
            raise ConfigError(
                f"minOffsetsPerTrigger: expected at most maxOffsetsPerTrigger={most}, got {least}"
            )
        return least

    def decode(self) -> str:
        decode = self.choice("decode", ("", "string", "json", "avro", "protobuf"))
        for name, its_decode in _DECODE_OF.items():
            if name.lower() in self._given and decode != its_decode:
                raise ConfigError(f"{name} is for decode={its_decode}, got {decode!r}")
        if self.text("avroSchema") and self.text("avroSchemaFile"):
            raise ConfigError("give one of avroSchema and avroSchemaFile")
        if bool(self.text("descriptorFile")) != bool(self.text("messageName")):
            raise ConfigError("descriptorFile and messageName belong together")
        return decode

    def file(self, name: str) -> bytes:
        """The content of the named file; empty when the option is not given."""
        path = self.text(name)
        if not path:
            return b""
        try:
            with open(path, "rb") as file:
                content = file.read(SPARK_SCHEMA_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"{name}: {error}") from None
        if not 0 < len(content) <= SPARK_SCHEMA_BYTES_MAX:
            raise ConfigError(
                f"{name}: {path} is empty or larger than {SPARK_SCHEMA_BYTES_MAX} bytes"
            )
        return content

    def text_of(self, name: str) -> str:
        try:
            return self.file(name).decode()
        except UnicodeDecodeError as error:
            raise ConfigError(f"{name}: {error}") from None

    def pin_schema(self, bootstrap: str) -> bool:
        given = ("valueSchema", "avroSchema", "avroSchemaFile", "descriptorFile")
        if not self.flag("pinSchema"):
            return False
        if not bootstrap or not any(map(self.text, given)):
            raise ConfigError(
                "pinSchema needs kafka.bootstrap.servers and a schema: " + ", ".join(given)
            )
        return True

    def dead_letter_topic(self, bootstrap: str) -> str:
        topic = self.text("deadLetterTopic")
        if self.choice("onDecodeError", ("fail", "deadletter")) == "fail":
            return ""
        if not topic or not bootstrap:
            raise ConfigError(
                "onDecodeError=deadletter needs deadLetterTopic and kafka.bootstrap.servers"
            )
        return topic

    def topics(self) -> Topics:
        choices = ("subscribe", "subscribePattern", "assign")
        given = [name for name in choices if name.lower() in self._given]
        if len(given) != 1:
            raise ConfigError(
                "give exactly one of subscribe, subscribePattern and assign; "
                f"got {' and '.join(given) or 'none'}"
            )
        if not self.names(given[0]):
            raise ConfigError(f"{given[0]}: expected topics, got {self.text(given[0])!r}")
        if given == ["assign"]:
            return Topics(partitions=self._assigned())
        if given == ["subscribePattern"]:
            pattern = self.text("subscribePattern")
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"subscribePattern: {error} in {pattern!r}") from None
            return Topics(pattern=pattern)
        return Topics(names=tuple(dict.fromkeys(self.names("subscribe"))))

    def _assigned(self) -> dict[str, tuple[int, ...]]:
        try:
            return msgspec.json.decode(self.text("assign"), type=dict[str, tuple[int, ...]])
        except msgspec.DecodeError as error:
            raise ConfigError(f'assign: expected JSON such as {{"orders": [0]}}: {error}') from None

    def bound(self, which: Literal["starting", "ending"], default: int) -> Bound:
        timestamp = self.count(f"{which}Timestamp", minimum=0)
        by_time = f"{which}OffsetsByTimestamp"
        name = f"{which}Offsets"
        text = self._given.get(name.lower(), "").strip()
        word = _WORDS.get(text.lower()) if text else default
        return Bound(
            timestamp=timestamp,
            timestamps=self._by_partition(by_time) if self.text(by_time) else None,
            offsets=word if word is not None else self._by_partition(name),
        )

    def _by_partition(self, name: str) -> dict[str, dict[int, int]]:
        try:
            # In Kafka's layout partitions are JSON keys, which are strings.
            raw = msgspec.json.decode(self.text(name), type=dict[str, dict[str, int]])
            return {
                topic: {int(partition): value for partition, value in parts.items()}
                for topic, parts in raw.items()
            }
        except (msgspec.DecodeError, ValueError) as error:
            expected = json.dumps({"orders": {"0": 23}})
            raise ConfigError(f"{name}: expected earliest, latest or {expected}: {error}") from None


def _is_client_setting(name: str, refused: Mapping[str, str], format_: str) -> bool:
    """Whether an option, with its name in lower case, is an ignored client setting.

    Raises `ConfigError` for a setting that is refused.
    """
    if not name.startswith("kafka."):
        return False
    if name in refused:
        raise ConfigError(f"{name} is not supported: {refused[name]}")
    if name.startswith(_SECURITY):
        raise ConfigError(f"{name} is not supported: it would change what protects the records")
    log.warning("option %s is not used by this %s", name, format_)
    return True
