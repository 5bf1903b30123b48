"""`dragoman topic alter` and `partitions`: changes of a topic that keep its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from dragoman import limits
from dragoman.api.topic_values import (
    AddedPartitions,
    NewPartitions,
    TopicChange,
    TopicConfiguration,
)
from dragoman.api.values import ConfigValue
from dragoman.cli.completers import TopicName
from dragoman.cli.confirmation import DryRun, Yes, ask, refuse_unasked
from dragoman.cli.output import Output, Table, show
from dragoman.cli.remote import CHECK_ONLY, DEFAULT_SERVER, Remote, Server, topic_path
from dragoman.cli.status import USAGE, CommandError, say
from dragoman.plural import plural

_PARTITIONS = Number(gte=1, lte=limits.TOPIC_PARTITIONS_MAX)
#: What is no configuration of a topic although it is one of its properties, and what changes it.
_ELSEWHERE: Final[Mapping[str, str]] = {
    "name": "a topic keeps its name",
    "num.partitions": "`dragoman topic partitions` adds partitions",
    "partitions": "`dragoman topic partitions` adds partitions",
    "replicas": "`dragoman cluster reassign` moves and adds replicas",
    "replication.factor": "`dragoman cluster reassign` moves and adds replicas",
    "topic.id": "a topic keeps its id",
}
_KEYED = (
    "Keys may belong to other partitions from then on: their new records are not in order with the "
    "existing ones, which stay where they are. Partitions cannot be removed again."
)


class ConfigChange(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the output of `topic alter`."""

    topic: str
    name: str
    value: str
    source: str
    new_value: str
    new_source: str


def assignments(option: str, given: Iterable[str]) -> dict[str, str]:
    """Keys and values of `KEY=VALUE`. Raises `CommandError`."""
    found: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise CommandError(f"{option}: expected KEY=VALUE, got {each!r}", USAGE)
        if key in found:
            raise CommandError(f"{option}: {key} is given twice", USAGE)
        found[key] = value
    return found


# ---- alter


def alter(
    name: TopicName,
    /,
    *,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = (),
    unset: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Change the configuration of a topic, and show its old and new values.

    Parameters
    ----------
    name
        Topic to change.
    set_
        New value, as KEY=VALUE; may be repeated.
    unset
        Key that returns to the node's default; may be repeated.

    Examples
    --------
    dragoman topic alter orders --set retention.ms=3600000 --dry-run
    dragoman topic alter orders --unset retention.ms
    """
    new = assignments("--set", set_)
    if not (new or unset):
        raise CommandError("nothing to change: give --set KEY=VALUE or --unset KEY", USAGE)
    for key in (*new, *unset):
        if key in _ELSEWHERE:
            raise CommandError(f"{key} is no configuration of a topic: {_ELSEWHERE[key]}", USAGE)
    remote, path = Remote(server), topic_path(name)
    before = _by_name(remote.get(f"{path}/config", TopicConfiguration))
    answer = remote.patch(
        path + (CHECK_ONLY if dry_run else ""),
        TopicChange(set=new, unset=unset),
        TopicConfiguration,
    )
    after = _by_name(answer)
    changes = [_change(name, before[key], after[key]) for key in sorted({*new, *unset})]
    show(output, changes, ConfigChange, _changes_table(changes))
    for change in changes:
        if not after[change.name].effective:
            say(f"warning: {change.name} has no effect")
    if dry_run and output == "table":
        say("nothing was changed")


def _by_name(configuration: TopicConfiguration) -> dict[str, ConfigValue]:
    return {each.name: each for each in configuration.items}


def _change(topic: str, before: ConfigValue, after: ConfigValue) -> ConfigChange:
    return ConfigChange(
        topic=topic,
        name=before.name,
        value=before.value,
        source=before.source,
        new_value=after.value,
        new_source=after.source,
    )


def _changes_table(changes: list[ConfigChange]) -> Table:
    return Table(
        ("CONFIG", "VALUE", "SOURCE", "NEW VALUE", "NEW SOURCE"),
        ((each.name, each.value, each.source, each.new_value, each.new_source) for each in changes),
    )


# ---- partitions


def partitions(
    name: TopicName,
    total: Annotated[int, Parameter(validator=_PARTITIONS)],
    /,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Add partitions to a topic.

    Parameters
    ----------
    name
        Topic to extend.
    total
        New number of partitions, existing ones included.

    Examples
    --------
    dragoman topic partitions orders 8 --dry-run
    """
    if not (yes or dry_run):
        refuse_unasked("topic partitions")
    remote, path = Remote(server), f"{topic_path(name)}/partitions"
    wanted = NewPartitions(total=total)
    if dry_run or not yes:
        checked = remote.post(path + CHECK_ONLY, wanted, AddedPartitions)
        more = plural(total - checked.before, "partition")
        text = f"topic {name!r} gets {more}, {total} in all. {_KEYED}"
        if dry_run:
            show(output, checked, AddedPartitions, _partitions_table(checked))
            say(text)
            return
        ask(f"{text}\nAdd them?")
    added = remote.post(path, wanted, AddedPartitions)
    if output == "table":
        say(f"topic {name!r} has {plural(added.total, 'partition')}; it had {added.before}")
    else:
        show(output, added, AddedPartitions)


def _partitions_table(added: AddedPartitions) -> Table:
    return Table(
        ("NAME", "PARTITIONS", "NEW PARTITIONS"), [(added.name, added.before, added.total)]
    )
