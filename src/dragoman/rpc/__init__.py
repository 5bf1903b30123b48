"""Remote procedure calls between nodes: typed requests, typed answers.

A service declares its requests and answers beside the handlers that serve them, and registers each
handler once. `Rpc.call` says *where* a request is served (a node, the leader of a partition, the
coordinator of a name), and runs the handler there: in this process when that is this node.

`messages` has the bases of requests and answers, `registry` the handlers and the form of errors on
the wire, `client` finds the node and retries.
"""

from dragoman.outcome import Retry
from dragoman.rpc.client import NoTransport, Rpc, Transport
from dragoman.rpc.messages import Answer, Coordinator, Done, Leader, Node, Reply, Request, Where
from dragoman.rpc.registry import Call, Registry

__all__ = [
    "Answer",
    "Call",
    "Coordinator",
    "Done",
    "Leader",
    "NoTransport",
    "Node",
    "Registry",
    "Reply",
    "Request",
    "Retry",
    "Rpc",
    "Transport",
    "Where",
]
