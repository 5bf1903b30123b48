"""Goal: of what Spark wraps around an error, people see one line."""

from __future__ import annotations

import pytest

from dragoman.errors import ConfigError
from dragoman.spark.failures import plainly, readable

WRAPPED = """[PYTHON_DATA_SOURCE_ERROR] Failed to generate partitions: Traceback:
  File "failures.py", line 42, in call
    raise error.with_traceback(None) from None
dragoman.errors.ConfigError: there is no topic 'nope'
 SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (WRAPPED, "there is no topic 'nope'"),
        ("Traceback:\n  File x\nValueError: no\n", "ValueError: no"),
        ("[PARSE] Error at 'x'. SQLSTATE: 42P01; line 1 pos 2", "[PARSE] Error at 'x'."),
        (
            "[STREAM_FAILED] Query [id = 1-2, runId = 3] terminated with exception: [RAISED] no!"
            " SQLSTATE: P0001 SQLSTATE: XXKST\n=== Streaming Query ===\n",
            "[RAISED] no!",
        ),
    ],
)
def test_message_is_found(text: str, line: str) -> None:
    assert readable(RuntimeError(text)) == line


def test_a_message_that_says_nothing_is_left_for_its_cause() -> None:
    error = RuntimeError("Exception thrown in awaitResult: ")
    error._cause = RuntimeError("[STATE] Not committed. SQLSTATE: XXKST\nmore")  # type: ignore[attr-defined]

    assert readable(error) == "[STATE] Not committed."


def test_own_errors_leave_without_the_way_they_came() -> None:
    @plainly
    def outer() -> None:
        raise ConfigError("wrong")

    with pytest.raises(ConfigError, match="wrong") as caught:
        outer()
    assert [entry.name for entry in caught.traceback][1:] == ["call"]


def test_what_the_bridge_to_java_says_is_left_out() -> None:
    error = Exception(
        "An error occurred while calling o52.toPythonIterator.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed.\n"
        "\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2856)\n"
        "Caused by: java.io.FileNotFoundException: File file:/tmp/a.parquet does not exist\n"
        "\tat org.apache.hadoop.fs.RawLocalFileSystem.open(RawLocalFileSystem.java:1)\n"
    )
    expected = "FileNotFoundException: File file:/tmp/a.parquet does not exist"
    assert readable(error) == expected
