"""The levels at which clients are told to use features, where they differ from the release's own.

Which features there are is a protocol's business; here their levels are kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.broker.changes import Changes
from dragoman.cluster.events import Event, FeatureLevelChanged
from dragoman.cluster.metadata import MetadataImage


class Features:
    def __init__(self, image: MetadataImage, changes: Changes) -> None:
        self._image = image
        self._changes = changes

    def level(self, feature: str, released: int) -> int:
        return self._image.features.get(feature, released)

    @property
    def version(self) -> int:
        """Grows with each change; clients compare it."""
        return self._changes.version

    async def change(self, levels: Mapping[str, int]) -> None:
        """All or none. Returns when new connections see the new levels."""
        events: list[Event] = [
            FeatureLevelChanged(feature=feature, level=level) for feature, level in levels.items()
        ]
        await self._changes.make(lambda: events)
