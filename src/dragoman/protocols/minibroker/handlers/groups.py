"""What commits and group subscriptions share: the groups may still have to be read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dragoman.errors import DragomanError
from dragoman.limits import GROUPS_LOADING_PAUSE_S
from dragoman.net.framed import Place
from dragoman.protocols.minibroker.handlers.refusals import refusal

if TYPE_CHECKING:
    from dragoman.protocols.minibroker.handlers.session import MinibrokerSession

#: What groups of this protocol are called in the registry of all groups.
OWNER: Final = "minibroker"


def when_groups_are_loaded(
    session: MinibrokerSession, place: Place, action: Callable[[], None]
) -> None:
    """Do it now, or as soon as the groups are there.

    Right after a start, clients come back before that. They do not try again what is refused: the
    original ignores the ERR to a subscription that it repeats.
    """
    broker = session.service.broker
    if broker.coordination.are_groups_loaded:
        action()
        return

    def again() -> None:
        if not place.is_done:
            try:
                when_groups_are_loaded(session, place, action)
            except DragomanError as error:
                place.reply(refusal(error))

    broker.scheduler.call_later(GROUPS_LOADING_PAUSE_S, again)
