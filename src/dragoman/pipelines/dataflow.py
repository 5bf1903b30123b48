"""From a definition to Spark's tables: sources, then steps in their order, then sinks.

Spark analyses each query when it is made, so what is wrong with one is told before any has started.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from dragoman.errors import ConfigError, DragomanError
from dragoman.pipelines.definition import (
    CdcSource,
    Definition,
    PythonSource,
    Source,
    Step,
    TableSource,
    TopicSource,
    Watermark,
)
from dragoman.pipelines.pipeline_file import PipelineFileError, inputs_of
from dragoman.pipelines.sources import cdc_frame, table_frame, topic_frame
from dragoman.spark.failures import readable, without_spark_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Tables:
    """A pipeline's tables in a session, by name, and as views for SQL."""

    def __init__(self, spark: SparkSession, definition: Definition) -> None:
        self._spark = spark
        self._definition = definition
        self._frames: dict[str, DataFrame] = {}

    def build(self) -> dict[str, DataFrame]:
        """What each sink is given. Raises `PipelineFileError`."""
        for name, source in self._definition.sources.items():
            with self.told_of(f"sources.{name}"):
                frame = self._source(name, source)
                self._define(name, frame, source.watermark)
        for name, step in self._definition.steps.items():
            with self.told_of(f"steps.{name}"):
                self._define(name, self._step(name, step), step.watermark)
        sinks = {}
        for name, sink in self._definition.sinks.items():
            with self.told_of(f"sinks.{name}"):
                frame = self._called(f"sinks.{name}", self._frames[sink.source])
                if not frame.isStreaming:
                    raise ConfigError(
                        f"{sink.source} is a table that does not grow; read a source of it with "
                        "stream = true, or copy it with a job of type replay"
                    )
                sinks[name] = frame
        return sinks

    @contextmanager
    def told_of(self, part: str) -> Iterator[None]:
        """Have what Spark, a source or somebody's function raises say which part it is about."""
        try:
            with without_spark_logs():
                yield
        except PipelineFileError:
            raise
        except (PySparkException, DragomanError) as error:
            problem = readable(error)
        except Exception as error:  # noqa: BLE001 (a function of the pipeline may raise anything)
            problem = f"{type(error).__name__}: {error}"
        else:
            return
        raise PipelineFileError(f"{self._definition.file}: {part}: {problem}") from None

    def _source(self, name: str, source: Source) -> DataFrame:
        match source:
            case TopicSource():
                frame = topic_frame(self._spark, source)
            case CdcSource():
                frame = cdc_frame(self._spark, source)
            case TableSource():
                frame = table_frame(self._spark, source)
            case PythonSource():
                made = self._definition.functions[f"sources.{name}"](self._spark)
                return self._checked(made)
        return self._called(f"sources.{name}", frame)

    def _step(self, name: str, step: Step) -> DataFrame:
        if step.sql:
            return self._spark.sql(step.sql)
        function = self._definition.functions[f"steps.{name}"]
        by_name = {each.lower(): frame for each, frame in self._frames.items()}
        return self._checked(
            function(*(by_name[each.lower()] for each in inputs_of(step, function)))
        )

    def _called(self, part: str, frame: DataFrame) -> DataFrame:
        """A file in Python may do something to what is read or written."""
        function = self._definition.functions.get(part)
        return frame if function is None else self._checked(function(frame))

    def _checked(self, made: object) -> DataFrame:
        if isinstance(made, str):
            return self._spark.sql(made)
        if not isinstance(made, DataFrame):
            raise ConfigError(f"the function returned {type(made).__name__}, not a DataFrame")
        return made

    def _define(self, name: str, frame: DataFrame, watermark: Watermark | None) -> None:
        if watermark is not None:
            if watermark.column not in frame.columns:
                raise ConfigError(
                    f"watermark: there is no column {watermark.column!r}; "
                    f"there are {', '.join(frame.columns)}"
                )
            frame = frame.withWatermark(watermark.column, watermark.interval)
        self._frames[name] = frame
        frame.createOrReplaceTempView(f"`{name}`")
