"""Goal: what passes by itself is told with codes on which clients come again."""

from __future__ import annotations

import pytest

from dragoman.broker.errors import NotEnoughReplicas, NotLeader, Overloaded, RequestTimedOut
from dragoman.errors import DiskFullError, DragomanError, FormatError, OutcomeUnknownError
from dragoman.protocols.cursus.client.errors import server_error
from dragoman.protocols.cursus.handlers.refusals import refusal_text


@pytest.mark.parametrize(
    ("error", "is_retriable", "is_ambiguous"),
    [
        (NotLeader("elsewhere"), True, False),
        (NotEnoughReplicas("1 in sync"), True, False),
        (DiskFullError("full"), True, False),
        (Overloaded("later"), True, False),
        (RequestTimedOut("the leader changed"), True, True),
        (OutcomeUnknownError("the leader of the metadata is away"), True, True),
        (FormatError("a newer release?"), False, False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_clients_know_whether_to_come_again(
    error: DragomanError, is_retriable: bool, is_ambiguous: bool
) -> None:
    told = server_error(refusal_text(error, lambda _node: None))
    assert (told.retriable, told.is_ambiguous) == (is_retriable, is_ambiguous)
