"""Commands about dead letters."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from dragoman.cli.output import Output, print_json
from dragoman.cli.rocketmq.messages import MessageView, view_of
from dragoman.cli.rocketmq.options import (
    DEFAULT_NAMESRV,
    Group,
    NameServers,
    administering,
    show,
    time_text,
)
from dragoman.cli.status import USAGE, CommandError, say
from dragoman.client.rocketmq import DeadLetter

MaxCount = Annotated[int, Parameter(name=["--max", "-m"])]


class LetterRow(msgspec.Struct, frozen=True):
    message_id: str
    origin_topic: str
    origin_message_id: str
    keys: str
    tried: int
    stored: str


class LetterView(msgspec.Struct, frozen=True):
    origin_topic: str
    origin_message_id: str
    message: MessageView


def dlq_list(
    *,
    group: Group,
    max_count: MaxCount = 1000,
    namesrv: NameServers = DEFAULT_NAMESRV,
    output: Output = "table",
) -> None:
    """List the messages that a group has given up.

    Parameters
    ----------
    max_count
        How many are listed at most.
    """
    with administering(namesrv) as admin:
        letters = admin.list_dead_letters(group, max_count=max_count)
    if output == "json":
        print_json(
            [
                LetterView(each.origin_topic, each.origin_message_id, view_of(each.message))
                for each in letters
            ]
        )
    else:
        show([_row(each) for each in letters], LetterRow, output)


def _row(letter: DeadLetter) -> LetterRow:
    message = letter.message
    return LetterRow(
        message.message_id,
        letter.origin_topic,
        letter.origin_message_id,
        " ".join(message.keys),
        message.reconsume_times,
        time_text(message.store_ms),
    )


def dlq_resend(
    *,
    group: Group,
    message_id: Annotated[
        tuple[str, ...], Parameter(name=["--message-id", "-i", "--msgId"], negative="")
    ] = (),
    resend_all: Annotated[bool, Parameter(name=["--all"], negative="")] = False,
    max_count: MaxCount = 1000,
    namesrv: NameServers = DEFAULT_NAMESRV,
) -> None:
    """Hand messages that a group has given up to it once more. They also stay where they are.

    Parameters
    ----------
    message_id
        Ids as `dlq-list` shows them; may be given several times.
    resend_all
        All of them instead.
    max_count
        How many are looked at, at most.
    """
    if bool(message_id) == resend_all:
        raise CommandError("expected either --message-id or --all", USAGE)
    with administering(namesrv) as admin:
        letters = admin.list_dead_letters(group, max_count=max_count)
        if message_id:
            known = {each.message.message_id: each for each in letters}
            missing = [each for each in message_id if each not in known]
            if missing:
                raise CommandError(f"group {group!r} has no dead letter {missing[0]}")
            letters = [known[each] for each in message_id]
        count = len(admin.resend_dead_letters(letters))
    say(f"resent messages: {count}")


COMMANDS = {"dlq-list dlqList": dlq_list, "dlq-resend dlqResend": dlq_resend}
