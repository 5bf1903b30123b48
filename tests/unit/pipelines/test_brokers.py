"""Goal: an address on the command line wins over the file's, and two clusters stay two."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import ConfigError
from dragoman.pipelines.brokers import with_bootstrap
from dragoman.pipelines.definition import Definition
from dragoman.pipelines.pipeline_file import load

FILE = """
name = "p"
{head}
[sources.a]
type = "topic"
topic = "a"
{source}
[sinks.b]
type = "topic"
from = "a"
topic = "b"
{sink}
[jobs.c]
type = "replay"
topic = "a"
to = "c"
{job}
"""


def _addresses(definition: Definition) -> list[str]:
    source, sink = definition.sources["a"], definition.sinks["b"]
    job = definition.jobs["c"].options
    return [
        getattr(source, "bootstrap", ""),
        getattr(sink, "bootstrap", ""),
        job.bootstrap,
        job.source_bootstrap,
    ]


def _loaded(tmp_path: Path, **lines: str) -> Definition:
    given = {"head": "", "source": "", "sink": "", "job": ""}
    given |= {name: f'bootstrap = "{address}"' for name, address in lines.items()}
    file = tmp_path / "p.toml"
    file.write_text(FILE.format(**given))
    return load(str(file))


@pytest.mark.parametrize(
    "lines",
    [{}, {"head": "file:1"}, {"source": "own:1", "sink": "own:1", "job": "own:1"}],
    ids=["none", "head", "parts"],
)
def test_the_one_broker_of_a_file_is_replaced(tmp_path: Path, lines: dict[str, str]) -> None:
    moved = with_bootstrap(_loaded(tmp_path, **lines), "given:1")
    assert _addresses(moved) == ["given:1", "given:1", "given:1", ""]
    assert moved.bootstrap == "given:1"


def test_a_part_with_another_cluster_keeps_it(tmp_path: Path) -> None:
    moved = with_bootstrap(_loaded(tmp_path, head="file:1", sink="other:1"), "given:1")
    assert _addresses(moved) == ["given:1", "other:1", "given:1", ""]


def test_an_address_that_could_be_for_either_cluster_is_refused(tmp_path: Path) -> None:
    definition = _loaded(tmp_path, source="one:1", sink="two:1", job="one:1")
    with pytest.raises(ConfigError, match="connects to one:1 and two:1"):
        with_bootstrap(definition, "given:1")
