"""Reasons for which a partition or the controller refuses a request.

`broker.errors` lists them with the refusals of the broker, and has the rule for their names.
"""

# ruff: noqa: N818

from __future__ import annotations

from dragoman.errors import BrokerError


class UnknownTopic(BrokerError): ...


class InvalidReplicaAssignment(BrokerError): ...


class RecordsNotDeletable(BrokerError):
    """The topic keeps the last record of each key, whatever its age."""


class ElectionNotNeeded(BrokerError):
    """The partition has the leader it should have."""


class NoReassignmentInProgress(BrokerError): ...


class NotLeader(BrokerError):
    """Another node leads the partition now: `leader`, or -1 if there is none."""

    def __init__(self, message: str, leader: int = -1) -> None:
        super().__init__(message)
        self.leader = leader


class NotEnoughReplicas(BrokerError):
    """Fewer replicas are in sync than `min.insync.replicas` asks for. Nothing was appended."""


class FencedLeaderEpoch(BrokerError):
    """The client knows an older leadership than this one."""


class UnknownLeaderEpoch(BrokerError):
    """The client knows a newer leadership than this node does."""


class RequestTimedOut(BrokerError):
    """The outcome is unknown: it may still take effect."""


class Overloaded(BrokerError):
    """A bound was reached; the same request may succeed later."""
