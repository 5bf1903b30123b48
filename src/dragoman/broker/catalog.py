"""The topics that members of consumer groups can read, as the metadata image has them now."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dragoman.broker.groups import TopicFacts
from dragoman.cluster.metadata import MetadataImage, TopicMetadata
from dragoman.types import TopicName


class ReadableTopics:
    def __init__(self, image: MetadataImage, is_visible: Callable[[str], bool]) -> None:
        self._image = image
        self._is_visible = is_visible

    @property
    def revision(self) -> int:
        return self._image.topics_revision

    def find(self, name: str) -> TopicFacts | None:
        topic = self._image.topics.get(name)
        return None if topic is None or not self._is_visible(name) else _facts(topic)

    def find_by_id(self, topic_id: bytes) -> TopicFacts | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else _facts(topic)

    def names(self) -> Iterator[TopicName]:
        """Without the broker's own: whoever wants these names them."""
        for name, topic in self._image.topics.items():
            if not topic.is_internal and self._is_visible(name):
                yield TopicName(name)


def _facts(topic: TopicMetadata) -> TopicFacts:
    return TopicFacts(TopicName(topic.name), topic.topic_id, len(topic.partitions))
