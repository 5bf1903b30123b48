"""Goal: defaults of a session leave alone what the user or the cluster has set.

Method: a builder that notes what it is given; no Spark is started.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.spark import sessions
from dragoman.spark.sessions import external_settings

SHUFFLE = "spark.sql.shuffle.partitions"


class _Builder:
    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def config(self, name: str, value: str) -> _Builder:
        self.settings[name] = value
        return self

    def master(self, master: str) -> _Builder:
        return self.config("spark.master", master)

    def appName(self, name: str) -> _Builder:
        return self

    def getOrCreate(self) -> dict[str, str]:
        return self.settings


@pytest.fixture(autouse=True)
def _nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "use_java", lambda: "")
    monkeypatch.setattr(sessions, "use_python", lambda: "")
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_ENV_LOADED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    # Set when a session starts; put back after the test.
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


def _started(master: str | None, **config: str) -> dict[str, str]:
    builder: Any = _Builder()
    settings: Any = sessions._started(builder, "test", master, config)
    return dict(settings)


@pytest.mark.parametrize("master", [None, "local", "local[2]", "local[*, 3]"])
def test_one_machine_shuffles_little(master: str | None) -> None:
    settings = _started(master)
    assert settings["spark.master"] == (master or "local[*]")
    assert settings[SHUFFLE] == "4"


@pytest.mark.parametrize("master", ["spark://h:7077", "yarn", "k8s://h", "local-cluster[2,1,512]"])
def test_a_cluster_keeps_its_own_settings(master: str) -> None:
    settings = _started(master)
    assert SHUFFLE not in settings
    assert "spark.driver.host" not in settings
    assert settings[sessions.PUSHDOWN] == "true"


def test_settings_made_elsewhere_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        f"# {SHUFFLE} 1\n{SHUFFLE}   12\nspark.ui.enabled=true\nspark.x: y z \nspark.empty\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.driver.host=h pyspark-shell")
    assert external_settings() == {
        SHUFFLE: "12",
        "spark.ui.enabled": "true",
        "spark.x": "y z",
        "spark.driver.host": "h",
    }
    settings = _started("local[2]")
    assert {SHUFFLE, "spark.ui.enabled", "spark.driver.host"}.isdisjoint(settings)
    assert _started("local[2]", **{SHUFFLE: "3"})[SHUFFLE] == "3"


def test_master_made_elsewhere_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master spark://h:7077 pyspark-shell")
    settings = _started(None)
    assert settings["spark.master"] == "spark://h:7077"
    assert SHUFFLE not in settings
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf 'unclosed")
    assert _started(None)["spark.master"] == "local[*]"


def test_spark_submit_decides_about_its_own_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    settings = _started(None)
    assert "spark.master" not in settings
    assert SHUFFLE not in settings
