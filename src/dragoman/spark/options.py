"""The options of the source and the sink `dragoman`: names, defaults, meaning, and their parsing.

Names are those of Spark's Kafka source and sink, so a job moves by changing one word; a few are
Dragoman's own. Spark passes options as text, and their names ignore case.

Of the settings of Kafka's clients, `kafka.…`, that neither format uses, some are refused for the
reasons that Spark's Kafka connector gives: a job that sets one expects what neither format does.
The others tune a client that does not run here; a warning names them.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from dragoman.errors import ConfigError
from dragoman.limits import KAFKA_CLIENT_BATCH_BYTES, SPARK_SCHEMA_BYTES_MAX
from dragoman.log.compression import Codec, codec_by_name

log = logging.getLogger("dragoman.spark")

PREFIX = "kafka."
#: By setting, what to do instead.
REFUSED_BY_SOURCE: Mapping[str, str] = {
    "kafka.auto.offset.reset": (
        "set startingOffsets to earliest or latest; a source keeps its own offsets and consumes "
        "without a group's"
    ),
    "kafka.key.deserializer": "keys are read as bytes; deserialize them with DataFrame operations",
    "kafka.value.deserializer": (
        "values are read as bytes; deserialize them with DataFrame operations or the option decode"
    ),
    "kafka.enable.auto.commit": "a source commits no offsets of its own accord",
    "kafka.interceptor.classes": "an interceptor may change records, so none is run",
}
REFUSED_BY_SINK: Mapping[str, str] = {
    "kafka.key.serializer": "keys are written as bytes; serialize them with DataFrame operations",
    "kafka.value.serializer": (
        "values are written as bytes; serialize them with DataFrame operations"
    ),
}
_SECURITY = ("kafka.sasl.", "kafka.ssl.", "kafka.security.")
#: The default of Kafka's clients, and all that there is here.
_NO_SECURITY = ("kafka.security.protocol", "PLAINTEXT")


def is_client_setting(name: str, value: str, refused: Mapping[str, str], reader: str) -> bool:
    """Whether an option, its name in lower case, is a client's setting to be passed over.

    `reader` is what the warning calls the one that passes it over. Raises `ConfigError` for a
    setting that is refused.
    """
    if not name.startswith(PREFIX):
        return False
    if name in refused:
        raise ConfigError(f"{name} is not supported: {refused[name]}")
    if (name, value.strip().upper()) == _NO_SECURITY:
        return True
    if name.startswith(_SECURITY):
        raise ConfigError(f"{name}: this release has no authentication and no TLS")
    log.warning("option %s is not used by this %s", name, reader)
    return True


log = logging.getLogger("dragoman.spark")

EARLIEST, LATEST = -2, -1
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
Mode: TypeAlias = Literal["batch", "stream"]


class Option(NamedTuple):
    name: str
    default: str
    meaning: str


OPTIONS = (
    Option("kafka.bootstrap.servers", "", "brokers, `HOST:PORT` with commas; also `bootstrap.servers`"),
    Option("path", "", "a broker's data directory; alone, no broker is needed"),
    Option("subscribe", "", "topics, with commas; exactly one of this and the next two"),
    Option("subscribePattern", "", "regular expression that is found anywhere in a topic's name; `^orders$` for a whole name"),
    Option("assign", "", 'partitions as JSON: `{"orders": [0, 1]}`'),
    Option("startingOffsets", "batch: earliest, stream: latest", "`earliest`, `latest`, or JSON: `{\"orders\": {\"0\": 23}}`; -2 earliest, -1 latest"),
    Option("endingOffsets", "latest", "batch only; the same form"),
    Option("startingTimestamp", "", "milliseconds since 1970 for all partitions; beats the options by partition"),
    Option("endingTimestamp", "", "the same for the end; batch only"),
    Option("startingOffsetsByTimestamp", "", "JSON of milliseconds by partition; beats `startingOffsets`"),
    Option("endingOffsetsByTimestamp", "", "the same for the end; batch only"),
    Option("startingOffsetsByTimestampStrategy", "error", "when no record is that young: `error` or `latest`"),
    Option("failOnDataLoss", "true", "fail when records were deleted before they were read, or a topic is another one"),
    Option("maxOffsetsPerTrigger", "", "records in one micro-batch at most, over all partitions"),
    Option("minOffsetsPerTrigger", "", "records to wait for before a micro-batch"),
    Option("maxTriggerDelay", "15m", "how long to wait for them at most"),
    Option("maxBytesPerTrigger", "", "bytes of the log in one micro-batch at most"),
    Option("minPartitions", "", "Spark partitions at least: large ranges are split"),
    Option("maxRecordsPerPartition", "", "offsets in one Spark partition at most"),
    Option("includeHeaders", "false", "adds the column `headers`"),
    Option("columns", "", "columns wanted, with commas; a schema does the same"),
    Option("readMode", "auto", "`segments`: files only; `broker`: never files; `auto`: files where they are seen"),
    Option("pushdown", "auto", "take filters over: `auto` does when the session has `spark.sql.python.filterPushdown.enabled`; `true` fails without; `false`"),
    Option("onIncomplete", "warn", "`path` alone, directory in use or not stopped cleanly: `warn` or `fail`"),
    Option("pinSeconds", "900", "how long planned files are kept from deletion after their last use"),
    Option("kafka.isolation.level", "read_committed", "or `read_uncommitted`"),
    Option("kafka.group.id", "", "a group that progress of a stream is committed to, so that its lag is seen"),
    Option("groupIdPrefix", "spark-dragoman-source", "taken for jobs of the Kafka source; there is no hidden group here"),
    Option("kafka.client.id", "dragoman-spark", "how the broker's log names this reader"),
    Option("kafka.request.timeout.ms", "30000", "time for one request"),
    Option("kafkaConsumer.pollTimeoutMs", "120000", "time for data to arrive, with all retries"),
    Option("fetchOffset.numRetries", "3", "how often a stream asks again for an end of the log that lies before its own offset"),
    Option("fetchOffset.retryIntervalMs", "10", "pause before that, and before the first retry of a request"),
    Option("useDeprecatedOffsetFetching", "", "taken for jobs of the Kafka source; offsets are always asked of the brokers"),
    Option("decode", "", "`string`, `json`, `avro` or `protobuf`: what the column `value` is read as"),
    Option("valueSchema", "", "fields of `decode=json`, as DDL; else those pinned in the topic's configuration, else inferred and pinned"),
    Option("avroSchema", "", "the schema that values of `decode=avro` were written with, as JSON; else the pinned one"),
    Option("avroSchemaFile", "", "a file with that schema, seen by the driver"),
    Option("avroFraming", "", "`confluent`: a zero byte and a schema id come first and are dropped; `single-object`: the schema's fingerprint must come first"),
    Option("descriptorFile", "", "`FileDescriptorSet` for `decode=protobuf`, seen by the driver: `protoc --include_imports --descriptor_set_out=FILE`; else the pinned one"),
    Option("messageName", "", "the message in it, with its package when the name alone is not enough"),
    Option("emit.default.values", "false", "Protobuf fields without presence that have their default: `true`: the default, `false`: null"),
    Option("upcast.unsigned.ints", "false", "`true`: `uint32` becomes `bigint` and `uint64` `decimal(20,0)`; `false`: large ones become negative"),
    Option("pinSchema", "false", "`true`: keep the schema given here in the topic's configuration, in place of what is there"),
    Option("onDecodeError", "fail", "a value that does not decode: `fail` or `deadletter`"),
    Option("deadLetterTopic", "", "where `deadletter` writes such records; needs a broker"),
)  # fmt: skip
#: Options that mean nothing elsewhere.
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
_NAMES = {option.name.lower(): option for option in OPTIONS}
#: Units of time as Spark reads them; a bare number is milliseconds.
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


def table() -> str:
    """For the page of the reference."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for each in OPTIONS:
        shown = f"`{each.default}`" if each.default and " " not in each.default else each.default
        rows.append(f"| `{each.name}` | {shown} | {each.meaning} |")
    return "\n".join(rows)


class Bound(msgspec.Struct, frozen=True):
    """Where to begin or end. The first that is set decides."""

    timestamp: int | None = None
    timestamps: dict[str, dict[int, int]] | None = None
    offsets: int | dict[str, dict[int, int]] = LATEST


class Topics(msgspec.Struct, frozen=True):
    """Which topics are read; exactly one is set."""

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
    #: Empty: the bytes as they are.
    decode: str
    value_schema: str
    #: JSON; empty: the pinned one.
    avro_schema: str
    avro_framing: str
    #: What `descriptorFile` holds; empty: the pinned one.
    descriptors: bytes
    message_name: str
    emit_defaults: bool
    upcast_unsigned: bool
    pin_schema: bool
    #: Empty: a value that does not decode fails the read.
    dead_letter_topic: str


def parse(given: Mapping[str, str], mode: Mode) -> SourceOptions:
    """Raises `ConfigError` that names the option, what was expected and what came."""
    reading = _Reading(given)
    bootstrap = reading.text("kafka.bootstrap.servers")
    path = reading.text("path")
    read_mode = reading.choice("readMode", ("auto", "segments", "broker"))
    if not bootstrap and not path:
        raise ConfigError("give kafka.bootstrap.servers, or path for a data directory")
    if read_mode == "broker" and not bootstrap:
        raise ConfigError("readMode=broker needs kafka.bootstrap.servers")
    if mode == "stream":
        reading.check_stream()
    start_default = EARLIEST if mode == "batch" else LATEST
    return SourceOptions(
        bootstrap=bootstrap,
        path=path,
        topics=reading.topics(),
        starting=reading.bound("starting", start_default),
        ending=reading.bound("ending", LATEST),
        is_late_start_allowed=reading.choice(
            "startingOffsetsByTimestampStrategy", ("error", "latest")
        )
        == "latest",
        fail_on_data_loss=reading.flag("failOnDataLoss"),
        max_offsets=reading.count("maxOffsetsPerTrigger"),
        min_offsets=reading.least_offsets(),
        max_delay_s=reading.duration_s("maxTriggerDelay"),
        max_bytes=reading.count("maxBytesPerTrigger"),
        min_partitions=reading.count("minPartitions"),
        max_records=reading.count("maxRecordsPerPartition"),
        include_headers=reading.flag("includeHeaders"),
        columns=reading.names("columns"),
        read_mode=read_mode,
        pushdown=reading.choice("pushdown", ("auto", "true", "false")),
        fail_on_incomplete=reading.choice("onIncomplete", ("warn", "fail")) == "fail",
        pin_s=reading.count("pinSeconds") or 0,
        committed_only=reading.choice(
            "kafka.isolation.level", ("read_committed", "read_uncommitted")
        )
        == "read_committed",
        group_id=reading.text("kafka.group.id"),
        client_id=reading.text("kafka.client.id"),
        request_timeout_s=(reading.count("kafka.request.timeout.ms") or 0) / 1000,
        poll_timeout_s=(reading.count("kafkaConsumer.pollTimeoutMs") or 0) / 1000,
        end_retries=reading.count("fetchOffset.numRetries", minimum=0) or 0,
        retry_pause_s=(reading.count("fetchOffset.retryIntervalMs", minimum=0) or 0) / 1000,
        decode=reading.decode(),
        value_schema=reading.text("valueSchema"),
        avro_schema=reading.text("avroSchema") or reading.text_of("avroSchemaFile"),
        avro_framing=reading.choice("avroFraming", ("", "confluent", "single-object")),
        descriptors=reading.file("descriptorFile"),
        message_name=reading.text("messageName"),
        emit_defaults=reading.flag("emit.default.values"),
        upcast_unsigned=reading.flag("upcast.unsigned.ints"),
        pin_schema=reading.pin_schema(bootstrap),
        dead_letter_topic=reading.dead_letter_topic(bootstrap),
    )


class _Reading:
    """Values by name, each refused with its name when it is not what was expected."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        if "bootstrap.servers" in self._given:
            self._given.setdefault("kafka.bootstrap.servers", self._given.pop("bootstrap.servers"))
        for name, value in self._given.items():
            _refuse_unknown(name, value)

    def text(self, name: str) -> str:
        return self._given.get(name.lower(), _NAMES[name.lower()].default).strip()

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.text(name).split(",") if part.strip())

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.text(name).lower()
        if value not in choices:
            expected = " or ".join(filter(None, choices))
            raise ConfigError(f"{name}: expected {expected}, got {value!r}")
        return value

    def flag(self, name: str) -> bool:
        value = self.text(name).lower()
        if value not in ("true", "false"):
            raise ConfigError(f"{name}: expected true or false, got {value!r}")
        return value == "true"

    def count(self, name: str, minimum: int = 1) -> int | None:
        value = self.text(name)
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and int(value) >= minimum):
            expected = "a positive number" if minimum else "a number that is not negative"
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
                raise ConfigError(f"{name} is for batches: a stream has no end")
        if self.text("endingTimestamp"):
            # Spark's Kafka source passes it over, so a job that has it must run.
            log.warning("endingTimestamp is for batches: a stream has no end")

    def least_offsets(self) -> int | None:
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
        """What is in it; nothing when none is named."""
        path = self.text(name)
        if not path:
            return b""
        try:
            with open(path, "rb") as file:
                content = file.read(SPARK_SCHEMA_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"{name}: {error}") from None
        if not 0 < len(content) <= SPARK_SCHEMA_BYTES_MAX:
            raise ConfigError(f"{name}: {path} is empty, or past {SPARK_SCHEMA_BYTES_MAX} bytes")
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
            # Kafka's layout has partitions as JSON keys, which are text.
            raw = msgspec.json.decode(self.text(name), type=dict[str, dict[str, int]])
            return {
                topic: {int(partition): value for partition, value in parts.items()}
                for topic, parts in raw.items()
            }
        except (msgspec.DecodeError, ValueError) as error:
            expected = json.dumps({"orders": {"0": 23}})
            raise ConfigError(f"{name}: expected earliest, latest or {expected}: {error}") from None


def _refuse_unknown(name: str, value: str) -> None:
    if name in _NAMES or is_client_setting(name, value, REFUSED_BY_SOURCE, "source"):
        return
    near = difflib.get_close_matches(name, _NAMES, n=1)
    hint = f"; is {_NAMES[near[0]].name} meant?" if near else ""
    raise ConfigError(f"unknown option {name!r}{hint}")


SINK_OPTIONS = (
    Option("kafka.bootstrap.servers", "", "brokers, `HOST:PORT` with commas; also `bootstrap.servers`"),
    Option("topic", "", "the topic for all rows; without it, each row names its own in the column `topic`"),
    Option("txnAppId", "", "streams: a name to know the query by instead of its id; one that another query used is refused"),
    Option("kafka.compression.type", "none", "`none`, `gzip`, `snappy`, `lz4` or `zstd`"),
    Option("kafka.batch.size", str(KAFKA_CLIENT_BATCH_BYTES), "bytes of records in one batch, before compression"),
    Option("kafka.client.id", "dragoman-spark", "how the broker's log names this writer"),
    Option("kafka.request.timeout.ms", "30000", "time for one request"),
    Option("kafka.delivery.timeout.ms", "120000", "time for a batch to be staged, and for a publication, with all retries"),
)  # fmt: skip
_SINK_NAMES = {option.name.lower(): option for option in SINK_OPTIONS}
#: Spark's own, which it hands over as well.
_SPARKS = frozenset({"bootstrap.servers", "checkpointlocation", "path", "queryname", "outputmode"})
#: Options of Spark's Kafka sink that change nothing there either: headers are written if a column
#: of that name is there.
_TAKEN = frozenset({"includeheaders"})
_BATCH_BYTES_MIN = 1024


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    bootstrap: str
    #: Empty: each row names its own.
    topic: str
    #: Empty: the query's id.
    writer_id: str
    codec: Codec
    batch_bytes: int
    client_id: str
    request_timeout_s: float
    delivery_timeout_s: float


def parse_sink(given: Mapping[str, str]) -> SinkOptions:
    """Raises `ConfigError` that names the option, what was expected and what came."""
    values = {name.lower(): value.strip() for name, value in given.items()}
    for name, value in values.items():
        _refuse_unknown_of_sink(name, value)

    def text(name: str) -> str:
        return values.get(name.lower(), _SINK_NAMES[name.lower()].default)

    def number(name: str, minimum: int) -> int:
        value = text(name)
        if not (value.isascii() and value.isdigit() and int(value) >= minimum):
            raise ConfigError(f"{name}: expected a number of at least {minimum}, got {value!r}")
        return int(value)

    bootstrap = text("kafka.bootstrap.servers") or values.get("bootstrap.servers", "")
    if not bootstrap:
        raise ConfigError("give kafka.bootstrap.servers")
    return SinkOptions(
        bootstrap=bootstrap,
        topic=text("topic"),
        writer_id=text("txnAppId"),
        codec=_codec(text("kafka.compression.type")),
        batch_bytes=number("kafka.batch.size", _BATCH_BYTES_MIN),
        client_id=text("kafka.client.id"),
        request_timeout_s=number("kafka.request.timeout.ms", 1) / 1000,
        delivery_timeout_s=number("kafka.delivery.timeout.ms", 1) / 1000,
    )


def _codec(name: str) -> Codec:
    if name not in ("none", "gzip", "snappy", "lz4", "zstd"):
        raise ConfigError(
            f"kafka.compression.type: expected none, gzip, snappy, lz4 or zstd, got {name!r}"
        )
    return codec_by_name(name)


def _refuse_unknown_of_sink(name: str, value: str) -> None:
    if name in _SINK_NAMES or name in _SPARKS or name in _TAKEN:
        return
    if is_client_setting(name, value, REFUSED_BY_SINK, "sink"):
        return
    near = difflib.get_close_matches(name, _SINK_NAMES, n=1)
    hint = f"; is {_SINK_NAMES[near[0]].name} meant?" if near else ""
    raise ConfigError(f"unknown option {name!r}{hint}")
