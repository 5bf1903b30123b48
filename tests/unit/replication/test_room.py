"""Goal: a node whose disk is full gets out of the way, and comes back when there is room."""

from __future__ import annotations

from typing import cast

from dragoman.cluster.events import Member, NodeRegistered
from dragoman.cluster.metadata import MetadataImage
from dragoman.replication.life import Life
from dragoman.replication.messages import (
    ControlReply,
    ControlRequest,
    Decision,
    HandOver,
    Registration,
)
from dragoman.replication.ports import Peers
from dragoman.replication.replication import Replication
from dragoman.testing.sim.scheduler import SimScheduler


class Disk:
    """What a life says of its data directory."""

    directory = "d"
    has_room = True

    def __init__(self) -> None:
        self.number = 0

    @property
    def name(self) -> str:
        return f"1/{self.number}"

    def begin_another(self) -> None:
        self.number += 1

    def is_named_by(self, event: NodeRegistered) -> bool:
        return (event.directory, event.life) == (self.directory, self.name)

    def registered(self) -> None: ...

    def registration(self, node_id: int, damaged: tuple[int, ...]) -> Registration:
        return Registration(
            node_id=node_id,
            directory=self.directory,
            life=self.name,
            is_intact=True,
            damaged=damaged,
        )


class Decisions:
    """Records requests and answers as scripted."""

    def __init__(self) -> None:
        self.hand_overs: list[Member] = []
        self.answer: ControlReply | None = ControlReply(outcomes=(Decision.ACCEPTED,))

    async def ask(self, request: ControlRequest) -> ControlReply | None:
        if isinstance(request, HandOver):
            self.hand_overs.append(request.member)
            return self.answer
        return ControlReply(outcomes=(Decision.ACCEPTED,))


def test_full_disk_hand_over_is_retried_until_accepted_and_happens_once() -> None:
    image, scheduler, controller, disk = MetadataImage(), SimScheduler(), Decisions(), Disk()
    replication = Replication(
        1,
        image,
        scheduler,
        cast(Peers, None),
        controller,
        lambda _: None,
        lambda _: None,  # type: ignore[arg-type,return-value]
    )
    news: list[bool] = []
    replication.on_room = news.append
    replication.start(cast(Life, disk))
    registered = NodeRegistered(node_id=1, incarnation=4, directory="d", life="1/0")
    image.apply(registered)
    replication.applied(registered)
    scheduler.advance(2.0)
    assert (controller.hand_overs, news) == ([], [])
    disk.has_room = False
    controller.answer = None
    scheduler.advance(2.0)
    assert len(controller.hand_overs) > 1
    assert news == [], "no node has taken over"
    controller.answer = ControlReply(outcomes=(Decision.ACCEPTED,))
    controller.hand_overs.clear()
    scheduler.advance(5.0)
    assert (controller.hand_overs, news) == ([Member(1, 4)], [False])
    disk.has_room = True
    scheduler.advance(2.0)
    # By its image it may lead still: it could not write down that it does not.
    assert news == [False], "what was agreed on meanwhile has not been heard"
    for life, heard in (("1/0", [False]), ("1/1", [False, True])):
        registered = NodeRegistered(node_id=1, incarnation=5, directory="d", life=life)
        image.apply(registered)
        replication.applied(registered)
        scheduler.advance(2.0)
        assert news == heard
    assert replication.member == Member(1, 5)
    assert len(controller.hand_overs) == 1
