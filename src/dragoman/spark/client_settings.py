"""Settings of Kafka's clients, `kafka.…`, that a source or sink has no use for.

Some are refused, with the reasons that Spark's Kafka connector gives: a job that sets one expects
what neither format does. The others tune a client that does not run here; a warning names them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from dragoman.errors import ConfigError

log = logging.getLogger("dragoman.spark")

PREFIX = "kafka."
#: By setting, what to do instead.
REFUSED_BY_SOURCE: Mapping[str, str] = {
    "kafka.auto.offset.reset": (
        "set startingOffsets to earliest or latest; a source keeps its own offsets and consumes "
        "without a group's"
    ),
    "kafka.key.deserializer": "keys are read as bytes; deserialize them with DataFrame operations",
    "kafka.value.deserializer": (
        "values are read as bytes; deserialize them with DataFrame operations or the option decode"
    ),
    "kafka.enable.auto.commit": "a source commits no offsets of its own accord",
    "kafka.interceptor.classes": "an interceptor may change records, so none is run",
}
REFUSED_BY_SINK: Mapping[str, str] = {
    "kafka.key.serializer": "keys are written as bytes; serialize them with DataFrame operations",
    "kafka.value.serializer": (
        "values are written as bytes; serialize them with DataFrame operations"
    ),
}
_SECURITY = ("kafka.sasl.", "kafka.ssl.", "kafka.security.")
#: The default of Kafka's clients, and all that there is here.
_NO_SECURITY = ("kafka.security.protocol", "PLAINTEXT")


def is_client_setting(name: str, value: str, refused: Mapping[str, str], reader: str) -> bool:
    """Whether an option, its name in lower case, is a client's setting to be passed over.

    `reader` is what the warning calls the one that passes it over. Raises `ConfigError` for a
    setting that is refused.
    """
    if not name.startswith(PREFIX):
        return False
    if name in refused:
        raise ConfigError(f"{name} is not supported: {refused[name]}")
    if (name, value.strip().upper()) == _NO_SECURITY:
        return True
    if name.startswith(_SECURITY):
        raise ConfigError(f"{name}: this release has no authentication and no TLS")
    log.warning("option %s is not used by this %s", name, reader)
    return True
