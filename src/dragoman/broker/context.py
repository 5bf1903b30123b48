"""The node as its services see it: id, clock, random numbers, settings and its metadata image.

The context has no reference to a service, so every service may have one to the context.
"""

from __future__ import annotations

from dragoman.cluster.metadata import MetadataImage, TopicMetadata
from dragoman.config.overrides import TopicConfig
from dragoman.config.settings import Settings
from dragoman.security.authorizer import AllowAll, Authorizer
from dragoman.world import Clock, Random, Scheduler


class NodeContext:
    def __init__(
        self, settings: Settings, scheduler: Scheduler, clock: Clock, random: Random
    ) -> None:
        #: The current settings; changes at run time replace them.
        self.settings = settings
        self.scheduler = scheduler
        self.clock = clock
        self.random = random
        self.node_id = settings.node_id
        self.image = MetadataImage()
        #: Decides for the callers of requests that other nodes send.
        self.authorizer: Authorizer = AllowAll()
        #: Whether the cluster knows this node, so that clients may connect.
        self.is_ready = False
        self.is_stopping = False

    def config_of(self, topic: TopicMetadata) -> TopicConfig:
        """The effective configuration of a topic: its own keys take precedence over the node's."""
        return TopicConfig.build(self.settings, topic.config)

    def internal_factor(self, wanted: int) -> int:
        """The replication factor of an internal topic: at most the number of nodes."""
        return min(wanted, len(self.image.nodes))
