"""Publishing: records that were staged aside appear in their topics exactly once.

Writers like Spark's work in attempts, of which some die and some run twice. Each attempt stages its
records in an internal topic; at the end one call names the attempts that count, and the broker puts
their records, and no others, where they belong.

`state` is a writer as a value, `records` its bytes in the log, `staging` the topic in which records
wait, `slices` the way to them, `copying` that from there into their topics, `publisher` the
machine, `service` what joins it to the broker and to other nodes. The writer's coordinator decides;
each partition's leader checks what it would get, and copies what it gets.
"""

from dragoman.broker.publications import Destination, Piece, Publication, Target
from dragoman.broker.publishing.publisher import Publisher
from dragoman.broker.publishing.service import Publishing
from dragoman.broker.publishing.staging import STAGING_EPOCH, StagingPlace
from dragoman.broker.publishing.state import STAGING_TOPIC, Writer

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
]
