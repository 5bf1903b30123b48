"""Goal: feature levels change only within what this release can do, and clients see them."""

from __future__ import annotations

import pytest

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Operation, Resource
from worlds.broker import Wire, World
from worlds.kafka_admin import forbidden

FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
VERSIONS = range(3)


def update(
    wire: Wire,
    *levels: tuple[str, int],
    version: int = 2,
    kind: int = SAFE_DOWNGRADE,
    validate_only: bool = False,
) -> m.UpdateFeaturesResponse:
    updates = [
        m.UpdateFeaturesRequestFeatureUpdate(
            feature=name,
            max_version_level=level,
            allow_downgrade=version == 0 and kind != UPGRADE,
            upgrade_type=kind if version >= 1 else UPGRADE,
        )
        for name, level in levels
    ]
    request = m.UpdateFeaturesRequest(
        feature_updates=updates, validate_only=validate_only and version >= 1
    )
    return wire.ask(request, version, m.UpdateFeaturesResponse)


def finalized(wire: Wire) -> dict[str, tuple[int, int]]:
    request = m.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    response = wire.ask(request, 4, m.ApiVersionsResponse)
    return {
        each.name: (each.min_version_level, each.max_version_level)
        for each in response.finalized_features
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_level_is_lowered_and_raised_and_advertised_to_clients(
    world: World, wire: Wire, version: int
) -> None:
    assert finalized(wire)[FEATURE] == (2, 2)
    assert update(wire, (FEATURE, 1), version=version).error_code == 0
    assert finalized(wire)[FEATURE] == (1, 1)
    wire.lose()
    again = Wire(world.reopened())
    assert finalized(again)[FEATURE] == (1, 1)
    assert update(again, (FEATURE, 2), version=version, kind=UPGRADE).error_code == 0
    assert finalized(again)[FEATURE] == (2, 2)


@pytest.mark.parametrize(
    ("feature", "level", "kind"),
    [
        (FEATURE, 3, UPGRADE),
        (FEATURE, 0, UNSAFE_DOWNGRADE),
        (FEATURE, -1, UNSAFE_DOWNGRADE),
        (FEATURE, 1, UPGRADE),
        ("nothing", 1, UPGRADE),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_levels_that_there_are_not(
    wire: Wire, feature: str, level: int, kind: int, version: int
) -> None:
    response = update(wire, (feature, level), version=version, kind=kind)
    if version >= 2:
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert response.error_message
    else:
        (result,) = response.results
        assert (response.error_code, result.feature) == (0, feature)
        assert result.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert result.error_message
    assert finalized(wire)[FEATURE] == (2, 2)


@pytest.mark.parametrize("version", VERSIONS)
def test_one_bad_update_stops_all(wire: Wire, version: int) -> None:
    response = update(wire, (FEATURE, 1), ("nothing", 1), version=version)
    if version < 2:
        assert [each.error_code for each in response.results] == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.INVALID_UPDATE_VERSION,
        ]
    else:
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert finalized(wire)[FEATURE] == (2, 2)


def test_same_feature_twice(wire: Wire) -> None:
    response = update(wire, (FEATURE, 1), (FEATURE, 1))
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_unknown_kind_of_update(wire: Wire) -> None:
    assert update(wire, (FEATURE, 2), kind=9).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [1, 2])
def test_only_to_validate(wire: Wire, version: int) -> None:
    assert update(wire, (FEATURE, 1), version=version, validate_only=True).error_code == 0
    assert finalized(wire)[FEATURE] == (2, 2)


def test_nothing_to_update(wire: Wire) -> None:
    assert update(wire).error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_authorizer_is_asked(version: int) -> None:
    wire = forbidden(Resource.CLUSTER, Operation.ALTER)
    response = update(wire, (FEATURE, 1), version=version)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
