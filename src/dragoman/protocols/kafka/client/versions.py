"""Which version of a request both sides know."""

from __future__ import annotations

from typing import Final

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.errors import UnsupportedRequestError
from dragoman.protocols.kafka.constants import ACCEPTED_VERSIONS, ApiKey

#: Newest versions sent where that is not the newest known. Offsets of version 10 name topics by id
#: only: a reply about topics that were deleted could not be read.
_CAPS: Final = {ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9}

#: From these versions on a topic is named by its id, so they need a broker that gave one.
FIRST_VERSION_WITH_TOPIC_IDS: Final = {ApiKey.PRODUCE: 13, ApiKey.FETCH: 13}


class ServedVersions:
    """The versions and features that a broker has announced."""

    __slots__ = ("_features", "_ranges", "address")

    def __init__(self, address: str, reply: m.ApiVersionsResponse) -> None:
        self.address = address
        self._ranges = {
            each.api_key: (each.min_version, each.max_version) for each in reply.api_keys
        }
        self._features = {each.name: each.max_version_level for each in reply.finalized_features}

    def level(self, feature: str) -> int:
        """What the cluster has agreed on; 0 where it has not heard of the feature."""
        return self._features.get(feature, 0)

    def has(self, api_key: ApiKey) -> bool:
        return api_key in self._ranges

    def pick(
        self, api_key: ApiKey, *, with_topic_ids: bool = True, newest: int | None = None
    ) -> int:
        """The newest version that both know. Raises `UnsupportedRequestError`."""
        ours = ACCEPTED_VERSIONS[api_key]
        if newest is None:
            newest = _CAPS.get(api_key, ours.high)
        if not with_topic_ids and api_key in FIRST_VERSION_WITH_TOPIC_IDS:
            newest = min(newest, FIRST_VERSION_WITH_TOPIC_IDS[api_key] - 1)
        served = self._ranges.get(api_key)
        if served is None:
            raise UnsupportedRequestError(f"{self.address} does not serve {_title(api_key)}")
        version = min(newest, served[1])
        if version < max(ours.low, served[0]):
            raise UnsupportedRequestError(
                f"{self.address} serves {_title(api_key)} in versions {served[0]} to {served[1]}, "
                f"this client speaks {ours.low} to {newest}"
            )
        return version


def newest_api_versions(reply: m.ApiVersionsResponse) -> int:
    """What to ask ApiVersions with after the first version was refused (KIP-511)."""
    for each in reply.api_keys:
        if each.api_key == ApiKey.API_VERSIONS:
            return max(0, min(ACCEPTED_VERSIONS[ApiKey.API_VERSIONS].high, each.max_version))
    return 0


def _title(api_key: ApiKey) -> str:
    return "".join(word.capitalize() for word in api_key.name.split("_"))
