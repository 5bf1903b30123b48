"""Reduces errors to one line: Spark wraps a source's errors in stack traces of two languages."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

#: The last line of a Python traceback that ends with one of Dragoman's errors.
_OURS = re.compile(r"^(?:dragoman|pyspark_dragoman)(?:\.\w+)+: (.+)$", re.MULTILINE)
_ANY = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
#: The prefix of every failed stream's error, an uninformative message, and the suffix of messages.
_STREAM = re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")
_EMPTY = "Exception thrown in awaitResult"
_SQLSTATE = re.compile(r"(?: SQLSTATE: \w{5})+\Z")
#: The prefix of py4j's errors, and the Java exceptions in their text.
_CALL = "An error occurred while calling "
_JAVA = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)+([\w$]+): (.+)$", re.MULTILINE)
#: Loggers of PySpark that print an error of a query, with its stack, before it can be caught.
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def readable(error: BaseException) -> str:
    """The message of an error without the stack traces that Spark wrapped around it."""
    text = str(error)
    if ours := _OURS.findall(text):
        return str(ours[-1])
    if "Traceback" in text and (found := _ANY.findall(text)):
        kind, message = found[-1]
        return f"{kind}: {message}"
    if text.startswith(_CALL) and (causes := _JAVA.findall(text)):
        kind, message = causes[-1]
        return f"{kind}: {message}"
    text = _STREAM.sub("", text.partition("\n\nJVM stacktrace")[0].partition("; line ")[0].strip())
    line = _SQLSTATE.sub("", text.split("\n")[0])
    cause: BaseException | None = getattr(error, "_cause", None)
    return readable(cause) if cause is not None and line.startswith(_EMPTY) else line


@contextmanager
def without_spark_logs() -> Iterator[None]:
    """Keep PySpark from printing query errors, which the caller reports."""
    from pyspark.logger import PySparkLogger

    # Created by PySpark's own function: PySpark passes arguments that plain loggers reject.
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


#: What py4j logs with a stack, at the root logger, for every call to a JVM that has ended.
_NO_GATEWAY = "Exception while sending command."


@contextmanager
def without_gateway_logs() -> Iterator[None]:
    """Keep py4j from printing a stack for each call to a JVM that has ended."""

    def is_other(record: logging.LogRecord) -> bool:
        return record.msg != _NO_GATEWAY

    root = logging.getLogger()
    root.addFilter(is_other)
    try:
        yield
    finally:
        root.removeFilter(is_other)


def is_gone(spark: SparkSession) -> bool:
    """Whether the session's context has stopped, or its JVM has ended."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except Exception:  # noqa: BLE001 (py4j has several errors for a JVM that does not answer)
        return True


def plainly(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorator for methods that Spark calls: strips the traceback from Dragoman's errors.

    Spark prints every frame before the message, which does not help a user.
    """

    @wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return method(*args, **kwargs)
        except DragomanError as error:
            raise error.with_traceback(None) from None

    return call


def iterated_plainly(
    method: Callable[Parameters, Iterator[Result]],
) -> Callable[Parameters, Iterator[Result]]:
    """Decorator for generators that Spark calls: strips the traceback from Dragoman's errors."""

    @wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Iterator[Result]:
        try:
            yield from method(*args, **kwargs)
        except DragomanError as error:
            raise error.with_traceback(None) from None

    return call
