"""Which log a read asks about topics and offsets, and which directory its files come from."""

from __future__ import annotations

import logging
import os
from typing import TypeAlias

from dragoman.client.kafka import ClientError
from dragoman.errors import ConfigError, LogError
from dragoman.spark.broker import BrokerLog
from dragoman.spark.options import SourceOptions
from dragoman.spark.storage import StoredLog

log = logging.getLogger("dragoman.spark")


class IncompleteError(LogError):
    """A directory that may hold acknowledged records outside its stable segments."""


AnyLog: TypeAlias = BrokerLog | StoredLog


def open_logs(options: SourceOptions) -> tuple[AnyLog, StoredLog | None]:
    """The log to ask, and the directory to read stable files from, if one is seen.

    Raises `ConfigError` when files are asked for and there is no directory.
    """
    if options.read_mode == "broker":
        return BrokerLog(options), None
    if not options.bootstrap:
        return _alone(options, options.path)
    served = BrokerLog(options)
    path = options.path or _seen_directory(served)
    if options.read_mode == "segments":
        served.close()
        if not path:
            raise ConfigError("readMode=segments: no broker's data directory is seen here")
        return _alone(options, path)
    if not path:
        return served, None
    return served, StoredLog(path, committed_only=options.committed_only)


def _alone(options: SourceOptions, path: str) -> tuple[StoredLog, StoredLog]:
    stored = StoredLog(path, committed_only=options.committed_only)
    if not stored.is_complete():
        problem = (
            f"{path} is in use or was not stopped cleanly: records behind its stable segments "
            "are left out; a broker, with kafka.bootstrap.servers, has them all"
        )
        if options.fail_on_incomplete:
            raise IncompleteError(problem)
        log.warning("%s", problem)
    return stored, stored


def _seen_directory(served: BrokerLog) -> str:
    """A data directory that brokers name and that is here; empty when there is none.

    Whether it holds the same topics is checked by their ids, one by one, when files are planned.
    """
    try:
        directories = served.directories()
    except ClientError as error:
        log.debug("brokers do not name their directories: %s", error)
        return ""
    for each in directories:
        if os.path.isabs(each.path) and StoredLog.is_at(each.path):
            return each.path
    return ""
