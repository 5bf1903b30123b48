"""Which log a read asks about topics and offsets, and which directory its files come from."""

from __future__ import annotations

import logging
import os
from typing import TypeAlias

from dragoman.client.kafka import ClientError
from dragoman.errors import ConfigError, LogError
from dragoman.spark import planner
from dragoman.spark.broker import BrokerLog
from dragoman.spark.options import SourceOptions
from dragoman.spark.storage import StoredLog

log = logging.getLogger("dragoman.spark")

#: In a warning about what is left out.
_PARTITIONS_NAMED_MAX = 50


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
        problem = _what_is_missing(stored, options)
        if options.fail_on_incomplete:
            raise IncompleteError(problem)
        log.warning("%s", problem)
    return stored, stored


def _what_is_missing(stored: StoredLog, options: SourceOptions) -> str:
    """Which offsets a read leaves out. Raises `ConfigError` when a topic is missing altogether.

    A partition of which nothing is stable may not even have a directory yet, so it is not named.
    """
    state = f"{stored.root} is in use or was not stopped cleanly"
    try:
        topics = planner.chosen_topics(stored, options.topics)
    except ConfigError as error:
        raise ConfigError(f"{error} in the stable segments; {state}") from None
    ends = sorted(stored.latest(planner.partitions_of(topics)).items())
    missing = [f"{where} from offset {end} on" for where, end in ends[:_PARTITIONS_NAMED_MAX]]
    if len(ends) > len(missing):
        missing.append(f"the ends of {len(ends) - len(missing)} more partitions")
    missing.append("partitions without a stable segment")
    return (
        f"{state}: left out are {', '.join(missing)}; "
        "a broker, with kafka.bootstrap.servers, has them all"
    )


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
