"""A Prometheus that scrapes each second and evaluates the faster rules."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy_check import tools
from deploy_check.command import ENVIRONMENT, CheckError
from deploy_check.faults.rules import write_faster
from nodes.ports import free_ports

_WAIT_S = 150
_LOOK_S = 0.2


class Prometheus:
    def __init__(self, home: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        write_faster(home / "alerts.yml")

    def start(self) -> None:
        self._configure()
        with (self._home / "prometheus.log").open("w") as log:
            self._process = subprocess.Popen(
                (
                    tools.promtool().with_name("prometheus"),
                    f"--config.file={self._home / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._home / 'series'}",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                    # A series that is no longer scraped ends as fast as the rules run.
                    "--query.lookback-delta=10s",
                ),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=ENVIRONMENT,
            )
        self._answers(set())

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=60)

    def scrape(self, *targets: str) -> None:
        """These nodes from now on, and no others."""
        assert self._process is not None
        self._configure(*targets)
        self._process.send_signal(signal.SIGHUP)
        self._answers(set(targets))

    def _answers(self, targets: set[str]) -> None:
        def answers() -> bool:
            try:
                return {each["instance"] for each in self.query("up == 1")} == targets
            except OSError:
                return False

        wait(answers, "Prometheus does not scrape the nodes")

    def _configure(self, *targets: str) -> None:
        jobs = [{"job_name": "dragoman", "static_configs": [{"targets": targets}]}]
        every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        text = {"global": every, "rule_files": ["alerts.yml"], "scrape_configs": jobs}
        (self._home / "prometheus.yml").write_text(json.dumps(text))

    def query(self, expression: str) -> list[dict[str, str]]:
        """Labels of the series for which an expression holds."""
        found = self._get(f"query?{urllib.parse.urlencode({'query': expression})}")["result"]
        return [dict(each["metric"]) for each in found]

    def until(self, expression: str, complaint: str) -> None:
        wait(lambda: bool(self.query(expression)), f"{complaint}: {expression}")

    def quiet(self, alert: str) -> None:
        wait(lambda: not self._alerts(alert), f"{alert} does not end")

    def firing(self, alert: str, labels: Mapping[str, str]) -> None:
        """Wait until an alert fires, and for nothing else than is meant."""

        def fires() -> bool:
            found = [each["labels"] for each in self._alerts(alert) if each["state"] == "firing"]
            if any(not labels.items() <= each.items() for each in found):
                raise CheckError(f"{alert} is about {found} and not about {dict(labels)}")
            return bool(found)

        wait(fires, f"{alert} does not fire")

    def _alerts(self, name: str) -> list[dict[str, Any]]:
        alerts = self._get("alerts")["alerts"]
        return [each for each in alerts if each["labels"]["alertname"] == name]

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=10) as answer:
            data: dict[str, Any] = json.load(answer)["data"]
        return data


def wait(condition: Callable[[], bool], complaint: str, seconds: float = _WAIT_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise CheckError(complaint)
        time.sleep(_LOOK_S)


@contextmanager
def prometheus(home: Path) -> Iterator[Prometheus]:
    found = Prometheus(home, next(free_ports()))
    found.start()
    try:
        yield found
    finally:
        found.stop()
