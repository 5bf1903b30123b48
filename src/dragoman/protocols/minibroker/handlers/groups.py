"""What commits and group subscriptions share: a group may still have to be read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dragoman.broker.errors import CoordinatorLoading, CoordinatorNotAvailable
from dragoman.errors import DragomanError
from dragoman.limits import GROUPS_LOADING_PAUSE_S
from dragoman.net.framed import Place
from dragoman.types import GroupId

if TYPE_CHECKING:
    from dragoman.protocols.minibroker.handlers.session import MinibrokerSession

#: What groups of this protocol are called in the registry of all groups.
OWNER: Final = "minibroker"


def when_group_is_loaded(
    session: MinibrokerSession, place: Place, group: GroupId, action: Callable[[], None]
) -> None:
    """Do it now, or as soon as what is kept of the group has been read back.

    Right after a start, clients come back before that. They do not try again what is refused: the
    original ignores the ERR to a subscription that it repeats.
    """
    broker = session.service.broker
    try:
        broker.coordination.require_group(group)
    except (CoordinatorLoading, CoordinatorNotAvailable):
        pass
    else:
        action()
        return

    def again() -> None:
        if not place.is_done:
            try:
                when_group_is_loaded(session, place, group, action)
            except DragomanError as error:
                place.reply(session.refusal(error))

    broker.scheduler.call_later(GROUPS_LOADING_PAUSE_S, again)
