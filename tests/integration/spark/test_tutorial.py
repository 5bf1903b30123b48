"""Goal: the tutorial shows what happens.

Method: its blocks are run in their order, against a broker on a free port and in an empty
directory, and what they print is compared with the page.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.cli.main import main
from dragoman.testing import EphemeralBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[3] / "docs/tutorials/spark.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(300)
def test_blocks_print_what_the_page_says(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    compared = 0
    directory = str(tmp_path / "spark-data")
    with EphemeralBroker(storage="directory", directory=directory) as broker:
        for number, (kind, text) in enumerate(BLOCKS[1:], 1):
            block = text.replace("127.0.0.1:9092", broker.bootstrap_servers)
            # Spark's own paths begin where its process was started.
            block = block.replace('"orders-', f'"{tmp_path}/orders-')
            if "Stop the broker" in PAGE.partition(text)[0]:
                broker.stop()
            if kind == "python":
                exec(compile(block, f"block {number}", "exec"), names)
            elif kind == "sh":
                program, *arguments = shlex.split(block)
                assert program == "dragoman"
                assert main([*arguments, "--bootstrap", broker.bootstrap_servers]) == 0
            else:
                assert capsys.readouterr().out == text, f"block {number}"
                compared += 1
    assert compared == 6
