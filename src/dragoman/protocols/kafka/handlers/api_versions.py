"""ApiVersions (18), versions 0 to 4, and UpdateFeatures (57), versions 0 to 2: what this broker
serves.

Any version of ApiVersions is answered: an unknown one with error 35 in the layout of version 0,
after which the client retries with a known version. Some requests with a handler are not listed,
because clients derive features from the listed requests.

UpdateFeatures sets the levels at which clients use optional parts of Kafka. A lower level affects
new connections; open connections keep theirs. An update is atomic.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from dragoman.broker.errors import InvalidFeatureLevel
from dragoman.errors import DecodeError, DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.connection import encode_api_versions_fallback
from dragoman.protocols.kafka.constants import ADVERTISED_VERSIONS, UNLISTED_KEYS, ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.service import REQUESTS, Core
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.security.access import Operation

#: Names of client software that KIP-511 allows.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


#: Highest levels of features that clients enable by level instead of version: an epoch per
#: transaction (KIP-890), and consumer groups (KIP-848). A range that starts at 0 would have to be
#: hidden from version 3.
_LEVELS = {"group.version": 1, "transaction.version": 2}
_SUPPORTED = [
    m.ApiVersionsResponseSupportedFeature(name=name, min_version=1, max_version=level)
    for name, level in _LEVELS.items()
]


def feature_range(feature: str) -> tuple[int, int] | None:
    """Lowest and highest level of a feature; None if it does not exist."""
    return (1, _LEVELS[feature]) if feature in _LEVELS else None


def feature_level(broker: Core, feature: str) -> int:
    """The level that clients use: the highest, unless an operator has lowered it."""
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
    # The first request of a connection; later ones have the same client id.
    call.session.channel.client_id = call.client_id
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


#: First version with one result for the whole request.
_ONE_RESULT_SINCE = 2


class _Direction(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@awaited
async def handle_update_features(call: Call) -> m.UpdateFeaturesResponse:
    request = call.decode(m.UpdateFeaturesRequest)
    updates = request.feature_updates
    errors: list[DragomanError | None] = [None] * len(updates)

    try:
        call.authorize_cluster(Operation.ALTER)
        if len({each.feature for each in updates}) < len(updates):
            raise DecodeError("a feature is in the request more than once")
        for index, update in enumerate(updates):
            try:
                _check_update(call, update)
            except DragomanError as error:
                errors[index] = error.with_traceback(None)
        if not request.validate_only and not any(errors):
            levels = {each.feature: each.max_version_level for each in updates}
            await call.service.broker.features.change(levels)
    except DragomanError as error:
        return _updated(call, request, errors, error)
    return _updated(call, request, errors, None)


def _check_update(call: Call, update: m.UpdateFeaturesRequestFeatureUpdate) -> None:
    feature, level = update.feature, update.max_version_level
    known = feature_range(feature)
    if known is None:
        raise InvalidFeatureLevel(f"there is no feature {feature!r}")
    lowest, highest = known
    if not lowest <= level <= highest:
        raise InvalidFeatureLevel(f"{feature} has levels {lowest} to {highest}, not {level}")
    may_lower = (
        update.allow_downgrade
        if call.version == 0
        else update.upgrade_type in (_Direction.SAFE_DOWNGRADE, _Direction.UNSAFE_DOWNGRADE)
    )
    if call.version >= 1 and update.upgrade_type not in list(_Direction):
        raise DecodeError(f"{feature}: upgrade type {update.upgrade_type} is not known")
    present = feature_level(call.service.broker, feature)
    if level < present and not may_lower:
        raise InvalidFeatureLevel(f"{feature} is at {present}; a downgrade was not requested")


def _updated(
    call: Call,
    request: m.UpdateFeaturesRequest,
    errors: list[DragomanError | None],
    error: DragomanError | None,
) -> m.UpdateFeaturesResponse:
    """The response. It has one error from version 2 on, and one for each feature before."""
    first = error or next((each for each in errors if each is not None), None)
    if error is not None or (first is not None and call.version >= _ONE_RESULT_SINCE):
        assert first is not None
        return m.UpdateFeaturesResponse(error_code=wire_code(first), error_message=str(first))
    others = ErrorCode.NONE if first is None else ErrorCode.OPERATION_NOT_ATTEMPTED
    return m.UpdateFeaturesResponse(
        error_message=None,
        results=[
            m.UpdateFeaturesResponseFeature(
                feature=update.feature,
                error_code=others if each is None else wire_code(each),
                error_message=(others.text if others else None) if each is None else str(each),
            )
            for update, each in zip(request.feature_updates, errors, strict=True)
        ],
    )
