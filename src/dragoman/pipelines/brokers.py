"""The brokers that the parts of a pipeline connect to: their addresses, and whether topics exist.

Both are determined before Spark starts.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

import msgspec

from dragoman.client.kafka import BlockingKafkaClient, ClientSettings, NewTopic, TopicExistsError
from dragoman.errors import ConfigError
from dragoman.pipelines.definition import CdcSource, Definition, Job, TopicSink, TopicSource
from dragoman.pipelines.pipeline_file import PipelineFileError

Part = TypeVar("Part", bound=msgspec.Struct)
_KEYS = ("bootstrap", "source_bootstrap")


def with_bootstrap(definition: Definition, bootstrap: str) -> Definition:
    """The definition with another address for its broker.

    If a pipeline connects two clusters, only the file's own `bootstrap` is replaced. Raises
    `ConfigError` when no part uses that address, which makes `--bootstrap` ambiguous.
    """
    used = _used(definition)
    replaced = used if len(used) == 1 else used & {definition.bootstrap}
    if used and not replaced:
        raise ConfigError(
            f"--bootstrap: the pipeline connects to {' and '.join(sorted(used))}, "
            "and neither is the `bootstrap` of the file"
        )
    jobs = {
        name: Job(type=job.type, options=_replaced(job.options, replaced, bootstrap))
        for name, job in definition.jobs.items()
    }
    return msgspec.structs.replace(
        definition,
        bootstrap=bootstrap,
        sources=_all_replaced(definition.sources, replaced, bootstrap),
        sinks=_all_replaced(definition.sinks, replaced, bootstrap),
        jobs=jobs,
    )


def _used(definition: Definition) -> set[str]:
    options = [job.options for job in definition.jobs.values()]
    parts = [*definition.sources.values(), *definition.sinks.values(), *options]
    return {value for part in parts for key in _KEYS if (value := getattr(part, key, ""))}


def _all_replaced(parts: Mapping[str, Part], replaced: set[str], bootstrap: str) -> dict[str, Part]:
    return {name: _replaced(part, replaced, bootstrap) for name, part in parts.items()}


def _replaced(part: Part, replaced: set[str], bootstrap: str) -> Part:
    changes = {key: bootstrap for key in _KEYS if getattr(part, key, "") in replaced}
    return msgspec.structs.replace(part, **changes)


_SETTINGS = ClientSettings(client_id="dragoman-pipeline", operation_timeout_s=10.0)


def check_topics(definition: Definition) -> None:
    """Create missing topics of sinks with `partitions`; other missing topics raise.

    Raises `PipelineFileError` for a missing topic, and errors of the client (`UnreachableError`)
    when a broker does not answer.
    """
    known: dict[str, set[str]] = {}
    for part, bootstrap, topic, partitions in _topics(definition):
        with BlockingKafkaClient(bootstrap, _SETTINGS) as client:
            if bootstrap not in known:
                known[bootstrap] = {each.name for each in client.cluster().topics.values()}
            if topic in known[bootstrap]:
                continue
            if not partitions:
                near = difflib.get_close_matches(topic, known[bootstrap], n=1)
                remedy = f"is {near[0]!r} meant?" if near else f"`dragoman topic create {topic}`"
                if part.startswith("sinks."):
                    remedy += ", or set partitions = N here to create it"
                raise PipelineFileError(
                    f"{definition.file}: {part}: no topic {topic!r} at {bootstrap}; {remedy}"
                )
            with suppress(TopicExistsError):
                client.create_topic(NewTopic(name=topic, partitions=partitions))
            known[bootstrap].add(topic)


def _topics(definition: Definition) -> list[tuple[str, str, str, int]]:
    """Part, broker, topic, and the partitions to create the topic with; 0: it must exist."""
    sources = [
        (f"sources.{name}", source.bootstrap, source.topic, 0)
        for name, source in definition.sources.items()
        if isinstance(source, TopicSource | CdcSource)
    ]
    sinks = [
        (f"sinks.{name}", sink.bootstrap, sink.topic, sink.partitions)
        for name, sink in definition.sinks.items()
        if isinstance(sink, TopicSink)
    ]
    jobs = [
        (f"jobs.{name}", job.options.bootstrap, job.options.topic, 0)
        for name, job in definition.jobs.items()
        if job.type == "materialize" and not job.options.path
    ]
    return sources + sinks + jobs
