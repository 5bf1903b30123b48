"""The options of the sink `dragoman`: names, meaning, and their reading into one value."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from dragoman.errors import ConfigError
from dragoman.limits import KAFKA_CLIENT_BATCH_BYTES
from dragoman.log.compression import Codec, codec_by_name
from dragoman.spark.client_settings import REFUSED_BY_SINK, is_client_setting
from dragoman.spark.options import Option

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
_NAMES = {option.name.lower(): option for option in SINK_OPTIONS}
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
        _refuse_unknown(name, value)

    def text(name: str) -> str:
        return values.get(name.lower(), _NAMES[name.lower()].default)

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


def _refuse_unknown(name: str, value: str) -> None:
    if name in _NAMES or name in _SPARKS or name in _TAKEN:
        return
    if is_client_setting(name, value, REFUSED_BY_SINK, "sink"):
        return
    near = difflib.get_close_matches(name, _NAMES, n=1)
    hint = f"; is {_NAMES[near[0]].name} meant?" if near else ""
    raise ConfigError(f"unknown option {name!r}{hint}")
