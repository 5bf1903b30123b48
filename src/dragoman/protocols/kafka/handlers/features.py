"""UpdateFeatures (57), versions 0 to 2: the levels at which clients use optional parts of Kafka.

What this release can do is in `api_versions.py`. Lowering a level keeps new connections from using
the newer part; what older clients do goes on. An update takes place as a whole or not at all.
"""

from __future__ import annotations

from enum import IntEnum

from dragoman.broker.errors import InvalidFeatureLevel
from dragoman.errors import DecodeError, DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.access import authorize_cluster
from dragoman.protocols.kafka.handlers.api_versions import feature_level, feature_range
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.security.authorizer import Operation

#: First version that answers for the whole request only.
_ONE_RESULT_SINCE = 2


class _Direction(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@awaited
async def handle(call: Call) -> m.UpdateFeaturesResponse:
    request = call.decode(m.UpdateFeaturesRequest)
    updates = request.feature_updates
    errors: list[DragomanError | None] = [None] * len(updates)

    try:
        authorize_cluster(call, Operation.ALTER)
        if len({each.feature for each in updates}) < len(updates):
            raise DecodeError("a feature is in the request more than once")
        for index, update in enumerate(updates):
            try:
                _check(call, update)
            except DragomanError as error:
                errors[index] = error
        if not request.validate_only and not any(errors):
            levels = {each.feature: each.max_version_level for each in updates}
            await call.service.broker.features.change(levels)
    except DragomanError as error:
        return _reply(call, request, errors, error)
    return _reply(call, request, errors, None)


def _check(call: Call, update: m.UpdateFeaturesRequestFeatureUpdate) -> None:
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
        raise InvalidFeatureLevel(f"{feature} is at {present}; a downgrade was not asked for")


def _reply(
    call: Call,
    request: m.UpdateFeaturesRequest,
    errors: list[DragomanError | None],
    error: DragomanError | None,
) -> m.UpdateFeaturesResponse:
    """Version 2 has one error for all; before, each feature has its own."""
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
