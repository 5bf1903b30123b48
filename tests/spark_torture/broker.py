"""`dragoman serve`, except that what is staged is too old on command.

Staged records live for a day, which no test can wait for.
"""

from __future__ import annotations

import sys
from unittest import mock

from dragoman.broker.staged_writes.staging_topic import StagingTopic
from dragoman.cli.main import main
from dragoman.log.partition import PartitionLog
from spark_torture.faults import load_plan


def too_old_below(self: StagingTopic, index: int, log: PartitionLog) -> int:
    return log.high_watermark if load_plan().all_is_old.exists() else 0


if __name__ == "__main__":
    with mock.patch.object(StagingTopic, "_too_old_below", too_old_below):
        sys.exit(main())
