"""Goal: a declarative project is found, gets a catalog that lasts, and fails with what was wrong.

Method: a `spark-pipelines` that only prints; the real one is run by tests/soak.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dragoman.pipelines import sdp
from dragoman.pipelines.runner import PipelineError

GOOD = """2026-11-16 08:44:26: Creating Spark session...
conf.py:61: UserWarning: Failed to set a due to [CANNOT_MODIFY_STATIC_CONFIG] Cannot modify it.
[Stage 0:>                                                          (0 + 0) / 1]
2026-11-16 08:45:58: Run is COMPLETED.
[INVALID_HANDLE.SESSION_CLOSED] The handle is invalid. Session was closed.
"""
BAD = """2026-11-16 08:45:58: Failed to resolve flow: 'a.b'.
conf.py:61: UserWarning: Failed to set a due to [CANNOT_MODIFY_STATIC_CONFIG] Cannot modify it.
Error: [UNRESOLVED_COLUMN.WITH_SUGGESTION] No `kee`. SQLSTATE: 42703; line 1 pos 7
Traceback (most recent call last):
pyspark.errors.exceptions.connect.AnalysisException:
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / sdp.SPEC).write_text("name: a\n")
    return tmp_path


def pretend(output: str, status: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = directory / "bin" / "spark-pipelines"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{output}END\nexit {status}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))


def test_a_project_is_a_folder_with_a_specification(project: Path) -> None:
    assert sdp.project_in(str(project)) == project
    assert sdp.project_in(str(project / sdp.SPEC)) == project
    assert sdp.project_in(str(project / "none")) is None
    (project / "pipeline.toml").touch()
    assert sdp.project_in(str(project)) is None


def test_a_run_is_judged_by_what_it_says(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(GOOD, 1, project, monkeypatch)
    said: list[str] = []

    assert sdp.run(project, is_dry=False, say=said.append) == 0

    assert [line.partition(": ")[2] for line in said[:-1]] == [
        "Creating Spark session...",
        "Run is COMPLETED.",
    ]
    assert said[-1] == "done"


def test_a_failure_is_one_line(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(BAD, 1, project, monkeypatch)

    with pytest.raises(PipelineError) as failed:
        sdp.run(project, is_dry=False, say=lambda _: None)

    problem = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] No `kee`."
    assert str(failed.value) == f"{project / sdp.SPEC}: {problem}"


def test_the_catalog_lasts_and_settings_of_the_project_come_last(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(GOOD, 0, project, monkeypatch)
    (project / "spark-defaults.conf").write_text("spark.ui.enabled true\n")

    sdp.run(project, is_dry=True, say=lambda _: None)

    settings = (project / sdp.HOME / "conf" / "spark-defaults.conf").read_text()
    assert f"databaseName={project}/.spark/metastore;create=true" in settings
    assert settings.endswith("spark.ui.enabled true\n")
    assert "SPARK_CONF_DIR" not in os.environ
