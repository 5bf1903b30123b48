"""What functions of a micro-batch have in common: how they fail, and how they pass a batch over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from dragoman.errors import DragomanError
from dragoman.spark.failures import readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Write: TypeAlias = "Callable[[DataFrame, int], None]"


class BatchError(DragomanError):
    """A batch could not be made."""


def failing_plainly(write: Write) -> Write:
    """Have what Spark raises in a function of a batch leave it in one line.

    Spark looks through what the function raises with a pattern that ends in a StackOverflowError
    when it is long, and a trace of Java is.
    """

    def call(batch: DataFrame, batch_id: int) -> None:
        try:
            write(batch, batch_id)
        except DragomanError as error:
            raise error.with_traceback(None) from None
        except Exception as error:
            if not type(error).__module__.startswith(("pyspark.", "py4j.")):
                raise
            raise BatchError(readable(error)) from None

    return call


def passed_over(batch: DataFrame) -> None:
    """Make a batch of which the sink has all rows already: aggregates and joins remember by it."""
    batch.write.format("noop").mode("overwrite").save()
