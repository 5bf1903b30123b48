"""What a node does for callers of the HTTP API that other nodes serve.

Registered when the node is composed, also on a node without a listener for HTTP. Imports nothing of
an HTTP server.
"""

from __future__ import annotations

from dragoman.api.node_groups import NodeGroups
from dragoman.api.node_rpc import PROTOCOL, NodeHandlers
from dragoman.api.node_topics import NodeBroker, NodeTopics
from dragoman.broker.leader_queues import LeaderQueues


def serve_other_nodes(broker: NodeBroker, queues: LeaderQueues) -> NodeHandlers:
    """Register the handlers of requests that other nodes send."""
    handlers = NodeHandlers()
    NodeTopics(broker).serve(handlers)
    NodeGroups(broker).serve(handlers)
    queues.protocols[PROTOCOL] = handlers.answer
    return handlers
