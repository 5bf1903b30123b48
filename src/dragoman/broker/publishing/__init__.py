"""Publishing: records that were staged aside appear in their topics exactly once.

Writers like Spark's work in attempts, of which some die and some run twice. Each attempt stages its
records in an internal topic; at the end one call names the attempts that count, and the broker puts
their records, and no others, where they belong.

`state` is a writer as a value, `records` its bytes in the log, `staging` the topic in which records
wait, `copying` the way from there into their topics, `publisher` the machine, `service` what joins
it to the broker.
"""

from dragoman.broker.publishing.publisher import Publication, Publisher
from dragoman.broker.publishing.service import Publishing
from dragoman.broker.publishing.staging import (
    STAGING_EPOCH,
    STAGING_TOPIC,
    StagingPlace,
    check_writable,
)
from dragoman.broker.publishing.state import Destination, Piece, Target, Writer

__all__ = [
    "STAGING_EPOCH",
    "STAGING_TOPIC",
    "Destination",
    "Piece",
    "Publication",
    "Publisher",
    "Publishing",
    "StagingPlace",
    "Target",
    "Writer",
    "check_writable",
]
