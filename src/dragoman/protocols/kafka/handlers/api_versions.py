"""ApiVersions (18), versions 0 to 4: what this broker serves.

Any version is answered; an unknown one with error 35 in the layout of version 0, after which the
client asks again. Only requests that have a handler are listed, and not all of those: clients
switch features on by what they find here.
"""

from __future__ import annotations

import re
from functools import lru_cache

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.connection import encode_api_versions_fallback
from dragoman.protocols.kafka.constants import ADVERTISED_VERSIONS, UNLISTED_KEYS, ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.service import REQUESTS, Core
from dragoman.protocols.kafka.handlers.session import Call

#: KIP-511: what a client may call itself.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


#: What clients switch on by feature level instead of by version: transactions with an epoch each
#: (KIP-890), and consumer groups (KIP-848). A range that starts at 0 would have to be hidden from
#: version 3.
_LEVELS = {"group.version": 1, "transaction.version": 2}
_SUPPORTED = [
    m.ApiVersionsResponseSupportedFeature(name=name, min_version=1, max_version=level)
    for name, level in _LEVELS.items()
]


def feature_range(feature: str) -> tuple[int, int] | None:
    """Lowest and highest level of a feature, or None when there is no such feature."""
    return (1, _LEVELS[feature]) if feature in _LEVELS else None


def feature_level(broker: Core, feature: str) -> int:
    """The level clients are told to use: the highest, unless an operator lowered it."""
    return min(broker.features.level(feature, _LEVELS[feature]), _LEVELS[feature])


def _finalized(broker: Core) -> list[m.ApiVersionsResponseFinalizedFeature]:
    levels = {name: feature_level(broker, name) for name in _LEVELS}
    return [
        m.ApiVersionsResponseFinalizedFeature(
            name=name, max_version_level=level, min_version_level=level
        )
        for name, level in levels.items()
    ]


@lru_cache(maxsize=1)
def served() -> list[m.ApiVersionsResponseApiKey]:
    return [
        m.ApiVersionsResponseApiKey(
            api_key=key,
            min_version=ADVERTISED_VERSIONS[ApiKey(key)].low,
            max_version=ADVERTISED_VERSIONS[ApiKey(key)].high,
        )
        for key in sorted(REQUESTS.keys() - UNLISTED_KEYS)
    ]


def handle(call: Call) -> None:
    request = call.decode(m.ApiVersionsRequest)
    code = ErrorCode.NONE
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        code = ErrorCode.INVALID_REQUEST
    call.reply(
        m.ApiVersionsResponse(
            error_code=code,
            api_keys=served(),
            supported_features=_SUPPORTED,
            finalized_features_epoch=call.service.broker.features.version,
            finalized_features=_finalized(call.service.broker),
        )
    )


def handle_unsupported(call: Call) -> None:
    call.reply_raw(encode_api_versions_fallback(call.request.correlation_id, served()))
