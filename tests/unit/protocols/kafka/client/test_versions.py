"""The version picked is the newest that both sides know; none is an error that names both."""

from __future__ import annotations

import pytest

from dragoman.protocols.kafka.client.broker import ServedVersions, newest_api_versions
from dragoman.protocols.kafka.client.errors import UnsupportedRequestError
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.messages import ApiVersionsResponse, ApiVersionsResponseApiKey


def served(**ranges: tuple[int, int]) -> ServedVersions:
    return ServedVersions("broker:1", reply(**ranges))


def reply(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponseApiKey(api_key=ApiKey[name], min_version=low, max_version=high)
            for name, (low, high) in ranges.items()
        ]
    )


@pytest.mark.parametrize(
    ("theirs", "picked"), [((0, 5), 5), ((4, 4), 4), ((0, 99), 17), ((17, 40), 17)]
)
def test_newest_common_version_is_picked(theirs: tuple[int, int], picked: int) -> None:
    assert served(FETCH=theirs).pick(ApiKey.FETCH) == picked


def test_without_topic_ids_names_are_used() -> None:
    versions = served(FETCH=(4, 17), PRODUCE=(0, 13))
    assert versions.pick(ApiKey.FETCH, with_topic_ids=False) == 12
    assert versions.pick(ApiKey.PRODUCE, with_topic_ids=False) == 12


def test_offsets_stay_with_topic_names() -> None:
    assert served(OFFSET_FETCH=(1, 10)).pick(ApiKey.OFFSET_FETCH) == 9


@pytest.mark.parametrize("theirs", [(0, 3), (18, 20)])
def test_no_common_version_is_an_error(theirs: tuple[int, int]) -> None:
    with pytest.raises(UnsupportedRequestError, match=r"broker:1 serves Fetch in versions"):
        served(FETCH=theirs).pick(ApiKey.FETCH)


def test_request_that_is_not_served_is_an_error() -> None:
    with pytest.raises(UnsupportedRequestError, match="does not serve DescribeGroups"):
        served().pick(ApiKey.DESCRIBE_GROUPS)


def test_second_api_versions_is_asked_as_the_broker_says() -> None:
    assert newest_api_versions(reply(API_VERSIONS=(0, 2))) == 2
    assert newest_api_versions(reply(API_VERSIONS=(0, 9))) == 4
    assert newest_api_versions(reply()) == 0
