"""What a broker says about a pipeline before Spark is started: whether its topics are there."""

from __future__ import annotations

import difflib
from contextlib import suppress

from dragoman.client.kafka import BlockingKafkaClient, ClientSettings, NewTopic, TopicExistsError
from dragoman.pipelines.definition import CdcSource, Definition, TopicSink, TopicSource
from dragoman.pipelines.pipeline_file import PipelineFileError

_SETTINGS = ClientSettings(client_id="dragoman-pipeline", operation_timeout_s=10.0)


def check_topics(definition: Definition) -> None:
    """Raises `PipelineFileError` for a topic that is missing; makes those that sinks may make.

    Raises `UnreachableError` and others of the client when a broker does not answer.
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
                    remedy += ", or partitions = N here to have it made"
                raise PipelineFileError(
                    f"{definition.file}: {part}: no topic {topic!r} at {bootstrap}; {remedy}"
                )
            with suppress(TopicExistsError):
                client.create_topic(NewTopic(name=topic, partitions=partitions))
            known[bootstrap].add(topic)


def _topics(definition: Definition) -> list[tuple[str, str, str, int]]:
    """Part, broker, topic, and with how many partitions it may be made."""
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
