"""Errors of the broker's replies. `client_core.errors` has those of connections.

ClientError
  CursusError               the broker refused; `server_code` and `text` are from its reply
    MemberFencedError       no longer a member, or of an older generation
    ProducerFencedError     a newer instance of the producer has taken over
    UnknownTopicError
    VersionConflictError    the event stream has another version
    NotLeaderError          another broker leads the partition: `leader`, if known
"""

from __future__ import annotations

import re
from typing import Final

from dragoman.client_core.errors import ClientError
from dragoman.protocols.cursus.constants import ERROR_PREFIX
from dragoman.protocols.cursus.errors import UNKNOWN_OUTCOME, is_retryable

_FENCED: Final = re.compile(r'^transaction_\w+ .*?reason="(producer fenced|transaction owner)')
_LEADER: Final = re.compile(r"LEADER_IS (\S+)|host=(\S+) port=(\d+)")


class CursusError(ClientError):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.server_code = text.partition(" ")[0]
        self.retriable = is_retryable(self.server_code)
        self.is_ambiguous = self.server_code == UNKNOWN_OUTCOME

    @property
    def leader(self) -> str:
        """Address of the broker to use instead; empty when the error names none."""
        found = _LEADER.search(self.text) if self.retriable else None
        return "" if found is None else found[1] or f"{found[2]}:{found[3]}"


class MemberFencedError(CursusError): ...


class ProducerFencedError(CursusError): ...


class UnknownTopicError(CursusError): ...


class VersionConflictError(CursusError): ...


class NotLeaderError(CursusError): ...


_KINDS: dict[str, type[CursusError]] = {
    "GEN_MISMATCH": MemberFencedError,
    "NOT_OWNER": MemberFencedError,
    "REBALANCE_REQUIRED": MemberFencedError,
    "member_not_found": MemberFencedError,
    "group_not_found": MemberFencedError,
    "producer_fenced": ProducerFencedError,
    "stale_producer_epoch": ProducerFencedError,
    "topic_not_found": UnknownTopicError,
    "version_conflict": VersionConflictError,
    "NOT_LEADER": NotLeaderError,
}


def server_error(text: str) -> CursusError:
    """The error for the text of a reply."""
    plain = text.removeprefix(ERROR_PREFIX)
    if _FENCED.search(plain):
        # Commands of transactions have codes of their own, and give the reason as text.
        return ProducerFencedError(plain)
    return _KINDS.get(plain.partition(" ")[0], CursusError)(plain)
