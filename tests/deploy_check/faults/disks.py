"""Faults of disks: one that fills, is full, or is slow."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import KafkaException, Producer

from deploy_check.command import NotRun, output_of
from deploy_check.faults.prometheus import Prometheus
from deploy_check.faults.served import SingleNode, dragoman
from deploy_check.faults.trial import Fault, Raised
from nodes import full_disk

_SIZE_MIB = 512
_RECORD_BYTES = 10_000
_TOPIC = "orders"
_SLOW_WRITES = "pwritev2,pwritev,fdatasync"
_DELAY_US = 300_000


@contextmanager
def stage(home: Path, prometheus: Prometheus) -> Iterator[tuple[Fault, ...]]:
    if reason := full_disk.reason_against():
        raise NotRun(reason)
    directory = home / "small"
    options = (
        "--set",
        "log.segment.bytes=8388608",
        "--set",
        "log.retention.check.interval.ms=2000",
    )
    with SingleNode(
        directory, *options, launcher=full_disk.launcher(directory, _SIZE_MIB)
    ) as served:
        prometheus.scrape(served.http)
        create = ("topic", "create", _TOPIC, "--partitions", "1")
        dragoman(*create, "--server", served.url)
        faults = _Faults(served, full_disk.SmallDisk(served.node, directory), prometheus)
        yield (
            Fault("DragomanSlowDisk", "each write takes 0.3 s (strace)", faults.slow),
            Fault("DragomanDiskFills", "a producer without retention", faults.filling),
            Fault("DragomanDiskLow", "a producer without retention", faults.low),
            Fault("DragomanNodeNotReady", "the disk is filled to the last byte", faults.full),
        )


class _Load:
    """A producer of so many bytes a second, until it is stopped."""

    def __init__(self, bootstrap: str, bytes_per_s: int, pause_s: float = 0.1) -> None:
        settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "message.timeout.ms": 5000}
        self._producer = Producer(settings)
        self._count = max(1, int(bytes_per_s * pause_s) // _RECORD_BYTES)
        self._pause_s = pause_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        value = bytes(_RECORD_BYTES)
        while not self._is_over.wait(self._pause_s):
            for _ in range(self._count):
                with suppress(BufferError, KafkaException):
                    self._producer.produce(_TOPIC, value)
            self._producer.poll(0)
        self._producer.flush(10)


class _Faults:
    def __init__(
        self, served: SingleNode, disk: full_disk.SmallDisk, prometheus: Prometheus
    ) -> None:
        self._served = served
        self._prometheus = prometheus
        self._disk = disk

    def _raised(self) -> Raised:
        service = self._served.service
        # Only the node has mounted its file system.
        enter = ("nsenter", "--target", str(service.pid), "--user", "--mount")
        return Raised(
            {"instance": self._served.http},
            self._served.variables(TOPIC=_TOPIC),
            [service],
            (*enter, "--preserve-credentials"),
        )

    def slow(self) -> Iterator[Raised]:
        if shutil.which("strace") is None:
            raise NotRun("there is no strace")
        inject = f"inject={_SLOW_WRITES}:delay_enter={_DELAY_US}"
        command = ("strace", "-f", "-p", str(self._served.service.pid))
        options = ("-e", f"trace={_SLOW_WRITES}", "-e", inject, "-o", "/dev/null")
        with _Load(self._served.kafka, _RECORD_BYTES, pause_s=1.0):
            tracer = subprocess.Popen((*command, *options), stderr=subprocess.DEVNULL)
            try:
                yield self._raised()
            finally:
                tracer.terminate()
                tracer.wait(timeout=60)
            yield self._raised()

    def filling(self) -> Iterator[Raised]:
        with _Load(self._served.kafka, 2_000_000) as load:
            yield self._raised()
            load.stop()
            yield self._raised()

    def low(self) -> Iterator[Raised]:
        self._unlimited()
        with _Load(self._served.kafka, 10_000_000):
            share = "dragoman_disk_free_bytes / dragoman_disk_size_bytes"
            self._prometheus.until(f"{share} < 0.09", "the disk does not fill")
        yield self._raised()
        unset = ("config", "unset", "log.retention.check.interval.ms")
        dragoman(*unset, "--server", self._served.url)

    def full(self) -> Iterator[Raised]:
        self._disk.fill()
        # The node finds out with its next write beyond the files that it has.
        with _Load(self._served.kafka, 5_000_000):
            self._prometheus.until("dragoman_ready == 0", "the node is ready")
        yield self._raised()
        self._disk.empty()
        yield self._raised()

    def _unlimited(self) -> None:
        body = '{"unset": ["retention.bytes"]}'
        url = f"{self._served.url}/api/v1/topics/{_TOPIC}"
        kind = ("-H", "content-type: application/json")
        output_of(("curl", "-s", "-f", "-X", "PATCH", url, *kind, "-d", body))
