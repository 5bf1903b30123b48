"""What a scenario is given: where to put data, how long to measure, and where figures go."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.broker import BenchmarkError, BrokerProcess
from harness.peers import PEERS, Peer
from harness.sampling import Sample, ratio, summary

Amount = TypeVar("Amount", int, float)


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one case of a scenario. Units are in the names of the metrics."""

    scenario: str
    case: str
    metrics: dict[str, float]
    #: Rate of this case divided by that of each named bound in the same interleaved run.
    ratios: dict[str, float] = {}


class Context:
    def __init__(self, root: Path, *, quick: bool, peers: Sequence[str]) -> None:
        self.root = root
        self.quick = quick
        #: Programs of the peers that are installed.
        self.peers = tuple(peers)
        self.figures: list[Figure] = []
        self.scenario = ""
        #: What went wrong in this scenario without ending it.
        self.troubles: list[str] = []
        self._directories = 0

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 5

    def scaled(self, full: Amount, quick: Amount) -> Amount:
        return quick if self.quick else full

    def directory(self, label: str) -> Path:
        """An unused path under the data directory."""
        self._directories += 1
        return self.root / f"{self._directories:03d}-{label}"

    @contextmanager
    def broker(
        self,
        *,
        durability: str = "fsync",
        settings: Mapping[str, str] | None = None,
        serve_http: bool = False,
        listener: str = "kafka",
    ) -> Iterator[BrokerProcess]:
        """A running broker with an empty directory, which goes with it."""
        directory = self.directory(f"dragoman-{durability}")
        broker = BrokerProcess(
            directory,
            durability=durability,
            settings=settings,
            serve_http=serve_http,
            listener=listener,
        )
        try:
            broker.start()
            yield broker
            self.stop(broker)
        finally:
            broker.kill()
            shutil.rmtree(directory, ignore_errors=True)

    def stop(self, broker: BrokerProcess) -> float:
        """A clean stop and how long it took. One that fails is reported, but costs no figures."""
        try:
            return broker.stop()
        except BenchmarkError as error:
            self.troubles.append(str(error))
            return math.nan

    @contextmanager
    def peer(self, program: str, value_bytes: int) -> Iterator[Peer]:
        directory = self.directory(program)
        try:
            peer = PEERS[program](directory, value_bytes)
            try:
                yield peer
            finally:
                peer.close()
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def add(
        self, case: str, metrics: Mapping[str, float], ratios: Mapping[str, float] | None = None
    ) -> None:
        # JSON has no word for what could not be measured.
        known = {name: value for name, value in metrics.items() if not math.isnan(value)}
        figure = Figure(scenario=self.scenario, case=case, metrics=known, ratios=dict(ratios or {}))
        self.figures.append(figure)

    def add_contest(
        self,
        case: str,
        samples: Mapping[str, Sequence[Sample]],
        extra: Mapping[str, float] | None = None,
    ) -> None:
        """The first contender is ours; the others are bounds, reported as cases of their own."""
        ours, *others = samples
        metrics = summary(samples[ours]) | dict(extra or {})
        ratios = {name: ratio(samples[ours], samples[name]) for name in others}
        self.add(case, metrics, ratios)
        for name in others:
            self.add(f"{case} [{name}]", summary(samples[name]))


def memory_metrics(broker: BrokerProcess) -> dict[str, float]:
    return {
        "resident_mb": broker.resident_kb() / 1024,
        "resident_peak_mb": broker.resident_peak_kb() / 1024,
    }


def settle_disk() -> None:
    """Have earlier writes on the disk, so that they do not slow the next stretch down."""
    os.sync()
