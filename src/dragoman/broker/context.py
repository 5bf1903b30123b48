"""The node as its services see it: number, time, chance, settings and the metadata it knows.

The context holds no service, so that every service may hold the context.
"""

from __future__ import annotations

from dragoman.cluster.metadata import MetadataImage, TopicMetadata
from dragoman.config.overrides import TopicConfig
from dragoman.config.settings import Settings
from dragoman.world import Clock, Random, Scheduler


class NodeContext:
    def __init__(
        self, settings: Settings, scheduler: Scheduler, clock: Clock, random: Random
    ) -> None:
        #: As they are now: changes at run time replace them.
        self.settings = settings
        self.scheduler = scheduler
        self.clock = clock
        self.random = random
        self.node_id = settings.node_id
        self.image = MetadataImage()
        #: Whether the cluster knows this node, and clients may come.
        self.is_ready = False
        self.is_stopping = False

    def config_of(self, topic: TopicMetadata) -> TopicConfig:
        """The configuration that holds for a topic, its own keys before the node's."""
        return TopicConfig.build(self.settings, topic.config)

    def internal_factor(self, wanted: int) -> int:
        """How many replicas the partitions of an internal topic get, of those that are wanted."""
        return min(wanted, len(self.image.nodes))
