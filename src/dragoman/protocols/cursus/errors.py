"""Cursus's error texts: codes, their classes, and the format that clients parse.

An error is `ERROR: <code> [key=value …]`. A connection that has enabled `structured_errors_v1` gets
` class=<class> retryable=<bool>` right after the code.
"""

from __future__ import annotations

from typing import Final

from dragoman.errors import DragomanError
from dragoman.protocols.cursus.constants import ERROR_PREFIX

#: Dragoman's code for a request whose outcome is unknown.
UNKNOWN_OUTCOME: Final = "request_cancelled"
#: The class of each code whose spelling does not determine it.
_CODES: Final[dict[str, str]] = {
    code: name
    for name, codes in {
        "routing": "NOT_COORDINATOR NOT_LEADER NOT_PARTITION_LEADER",
        "availability": (
            "cluster_metadata_unavailable cluster_not_available coordinator_not_available "
            "fsm_not_available leader_election_result_unavailable leader_not_found "
            "no_raft_leader offset_manager_not_available request_cancelled router_not_available "
            "transaction_abort_marker_failed transaction_commit_failed "
            "transaction_manager_not_available transaction_sync_failed"
        ),
        "fencing": (
            "GEN_MISMATCH NOT_OWNER REBALANCE_REQUIRED STALE_LEADER_EPOCH member_not_found "
            "producer_fenced stale_producer_epoch"
        ),
        "conflict": (
            "OFFSET_OUT_OF_RANGE leader_election_rejected offset_regression version_conflict "
            "snapshot_version_exceeds_stream producer_reinitialization_required "
            "topic_not_assigned_to_group transaction_aborted transaction_already_committed "
            "transaction_not_abortable transaction_not_committing transaction_record_not_staged"
        ),
        "authorization": (
            "authentication_failed authentication_required transaction_metadata_forbidden"
        ),
        "validation": (
            "unknown_command decode_failed malformed_input duplicate_partition no_valid_offsets "
            "event_sourcing_not_enabled"
        ),
    }.items()
    for code in codes.split()
}
CLASSES: Final = tuple(sorted({*_CODES.values(), "internal", "not_found"}))


class Refusal(DragomanError):  # noqa: N818
    """A refused request. `text` is the error without its `ERROR: `.

    A structured refusal includes class and `retryable`, whatever the connection has negotiated.
    """

    def __init__(self, text: str, *, is_structured: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.is_structured = is_structured


def error_class(code: str) -> str:
    known = _CODES.get(code)
    if known is not None:
        return known
    if code.startswith(("NOT_AUTHORIZED_", "internal_")):
        return "authorization"
    if code.endswith("_not_found"):
        return "not_found"
    if code.startswith(("invalid_", "missing_", "empty_", "UNSUPPORTED_")):
        return "validation"
    return "internal"


def is_retryable(code: str) -> bool:
    return error_class(code) in ("routing", "availability")


def error_text(text: str, *, is_structured: bool) -> str:
    """The whole reply to a refused request."""
    if not is_structured:
        return ERROR_PREFIX + text
    code, space, rest = text.partition(" ")
    retryable = "true" if is_retryable(code) else "false"
    return f"{ERROR_PREFIX}{code} class={error_class(code)} retryable={retryable}{space}{rest}"
