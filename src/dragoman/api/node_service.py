"""What a node does for callers of the HTTP API that other nodes serve.

Registered when the node is composed, also on a node without a listener for HTTP. Imports nothing of
an HTTP server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dragoman.api.node_figures import NodeFigures
from dragoman.api.node_groups import NodeGroups
from dragoman.api.node_lists import NodeLists, OwnLists
from dragoman.api.node_rpc import PROTOCOL, NodeHandlers
from dragoman.api.node_topics import NodeBroker, NodeTopics
from dragoman.api.node_usage import NodeUsage
from dragoman.broker.leader_queues import LeaderQueues

if TYPE_CHECKING:
    from dragoman.telemetry.history.recorder import Recorder


def serve_other_nodes(
    broker: NodeBroker,
    queues: LeaderQueues,
    history: Callable[[], Recorder | None] = lambda: None,
    own_lists: Callable[[], OwnLists] | None = None,
) -> NodeHandlers:
    """Register the handlers of requests that other nodes send. The history begins after a node's
    start; without `own_lists`, requests for these are refused.
    """
    handlers = NodeHandlers()
    NodeTopics(broker).serve(handlers)
    NodeGroups(broker).serve(handlers)
    NodeUsage(broker).serve(handlers)
    NodeFigures(broker, history).serve(handlers)
    if own_lists is not None:
        NodeLists(own_lists).serve(handlers)
    queues.protocols[PROTOCOL] = handlers.answer
    return handlers
