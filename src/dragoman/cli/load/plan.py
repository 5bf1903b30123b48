"""What a benchmark does. Every worker gets the same plan, and its number."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.client.kafka import ClientSettings, SaslLogin, TlsSettings

Mode: TypeAlias = Literal["produce", "consume", "latency"]
Acks: TypeAlias = Literal["all", "1", "0"]
CodecName: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Keys: TypeAlias = Literal["none", "uniform", "zipf"]
Values: TypeAlias = Literal["random", "text"]

#: After a plan's end, for replies and for batches that were due before it.
GRACE_S: Final = 10.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    mode: Mode
    brokers: str
    topics: tuple[str, ...]
    tls: TlsSettings | None = None
    login: SaslLogin | None = None
    processes: int = 1
    #: Of a process, each with connections of its own.
    clients: int = 1
    #: Batches of a client without a reply.
    in_flight: int = 5
    record_bytes: int = 1024
    batch_records: int = 100
    acks: Acks = "all"
    codec: CodecName = "none"
    values: Values = "random"
    keys: Keys = "none"
    key_count: int = 10_000
    #: Records a second, of all processes; None: as many as the broker takes.
    rate: float | None = None
    #: Records to measure, of all processes; None: no limit.
    records: int | None = None
    duration_s: float | None = None
    warm_up_s: float = 0.0
    fetch_bytes: int = 1 << 20
    seed: int = 1

    def client_settings(self) -> ClientSettings:
        """Nothing is retried: a retry would hide an error in a latency."""
        return ClientSettings(
            client_id="dragoman-bench",
            tls=self.tls,
            login=self.login,
            in_flight_max=max(5, self.in_flight),
            operation_timeout_s=0.001,
        )
