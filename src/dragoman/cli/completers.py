"""Names that a shell completes: those of topics and groups, asked from the node, and of contexts.

A shell waits for them at every press of Tab, so there is one request with a short time-out, and a
failure means no names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from cyclopts import Parameter

from dragoman.cli.contexts import contexts_file, read
from dragoman.cli.remote import Remote
from dragoman.cli.status import CommandError
from dragoman.cli.target import Target
from dragoman.limits import CLI_COMPLETION_SECONDS

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

#: Options that say where the node is. Commands on a broker have some of them.
_OPTIONS: Final = ("server", "token_file", "user", "password_file", "ca_file", "context")


def topic_names(typed: CompletionContext) -> list[str]:
    # Imported here: only completion needs it.
    from dragoman.api.values import TopicPage

    node = _node(typed)
    try:
        return [] if node is None else [each.name for each in node.get(_TOPICS, TopicPage).items]
    except CommandError:
        return []


def group_names(typed: CompletionContext) -> list[str]:
    from dragoman.api.values import GroupPage

    node = _node(typed)
    try:
        return [] if node is None else [each.group for each in node.get(_GROUPS, GroupPage).items]
    except CommandError:
        return []


def context_names(_typed: CompletionContext) -> list[str]:
    try:
        return sorted(read(contexts_file()).context)
    except CommandError:
        return []


_TOPICS: Final = "/api/v1/topics"
_GROUPS: Final = "/api/v1/groups"


def _node(typed: CompletionContext) -> Remote | None:
    """The node that the words so far and the environment name; None if it wants a password, which a
    terminal must not be asked for here.
    """
    given = {}
    for option in _OPTIONS:
        argument = typed.get("--" + option.replace("_", "-"))
        given[option] = (argument.raw or "") if argument is not None else ""
    try:
        target = Target(**given)
        found = target.resolved()
        if found.user and not found.password_file:
            return None
        return Remote(target, timeout_s=CLI_COMPLETION_SECONDS)
    except CommandError:
        return None


TopicName: TypeAlias = Annotated[str, Parameter(completer=topic_names)]
GroupName: TypeAlias = Annotated[str, Parameter(completer=group_names)]
ContextName: TypeAlias = Annotated[str, Parameter(completer=context_names)]
