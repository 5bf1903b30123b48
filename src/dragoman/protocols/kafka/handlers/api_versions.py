"""ApiVersions (18), versions 0 to 4: what this broker serves.

Any version is answered; an unknown one with error 35 in the layout of version 0, after which the
client asks again. Only requests that have a handler are listed: clients switch features on by what
they find here.
"""

from __future__ import annotations

import re
from functools import lru_cache

from dragoman.protocols.kafka.connection import encode_api_versions_fallback
from dragoman.protocols.kafka.constants import ADVERTISED_VERSIONS, ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiKey,
    ApiVersionsResponseFinalizedFeature,
    ApiVersionsResponseSupportedFeature,
)

#: KIP-511: what a client may call itself.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


#: What clients switch on by feature level instead of by version: transactions with an epoch each
#: (KIP-890). A range that starts at 0 would have to be hidden from version 3.
_LEVELS = {"transaction.version": 2}
_SUPPORTED = [
    ApiVersionsResponseSupportedFeature(name=name, min_version=1, max_version=level)
    for name, level in _LEVELS.items()
]
_FINALIZED = [
    ApiVersionsResponseFinalizedFeature(name=name, max_version_level=level, min_version_level=level)
    for name, level in _LEVELS.items()
]


@lru_cache(maxsize=1)
def served() -> list[ApiVersionsResponseApiKey]:
    from dragoman.protocols.kafka.handlers.service import HANDLERS

    return [
        ApiVersionsResponseApiKey(
            api_key=key,
            min_version=ADVERTISED_VERSIONS[ApiKey(key)].low,
            max_version=ADVERTISED_VERSIONS[ApiKey(key)].high,
        )
        for key in sorted(HANDLERS)
    ]


def handle(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, ApiVersionsRequest)
    code = ErrorCode.NONE
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        code = ErrorCode.INVALID_REQUEST
    call.reply(
        ApiVersionsResponse(
            error_code=code,
            api_keys=served(),
            supported_features=_SUPPORTED,
            finalized_features_epoch=0,
            finalized_features=_FINALIZED,
        )
    )


def handle_unsupported(call: Call) -> None:
    call.reply_raw(encode_api_versions_fallback(call.request.correlation_id, served()))
