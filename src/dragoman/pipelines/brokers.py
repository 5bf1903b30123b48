"""The brokers that the parts of a pipeline connect to: their addresses, the login at them, and
whether topics exist.

All are determined before Spark starts.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

import msgspec

from dragoman.client.kafka import (
    BlockingKafkaClient,
    ClientSettings,
    NewTopic,
    SaslLogin,
    TlsSettings,
    TopicExistsError,
)
from dragoman.errors import ConfigError
from dragoman.pipelines.definition import (
    CdcSource,
    Definition,
    Job,
    OptionValue,
    SecurityKeys,
    TopicSink,
    TopicSource,
)
from dragoman.pipelines.pipeline_file import PipelineFileError
from dragoman.spark.options import security_of
from dragoman.spark.security import options_of

Part = TypeVar("Part", bound=msgspec.Struct)
_KEYS = ("bootstrap", "source_bootstrap")
_SECURITY = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")


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


def with_security(definition: Definition) -> Definition:
    """The definition with the options for TLS and the login in each part of the file's broker.

    A part of another cluster, and one that has such options itself, keeps its own: a login is
    never sent to a broker that it is not for.
    """
    if definition.security is None:
        return definition
    own, options = definition.bootstrap, _options_of(definition.security)
    jobs = {
        name: Job(type=job.type, options=_secured_job(job.options, own, options))
        for name, job in definition.jobs.items()
    }
    return msgspec.structs.replace(
        definition,
        sources={name: _secured(each, own, options) for name, each in definition.sources.items()},
        sinks={name: _secured(each, own, options) for name, each in definition.sinks.items()},
        jobs=jobs,
    )


def _options_of(keys: SecurityKeys) -> dict[str, str]:
    tls = TlsSettings(ca=keys.ca, certificate=keys.certificate, key=keys.key)
    login = None
    if keys.has_login:
        login = SaslLogin(mechanism=keys.mechanism, name=keys.user, password=keys.password)
    return options_of(tls if keys.is_encrypted else None, login)


def _secured(part: Part, own: str, options: Mapping[str, str]) -> Part:
    if getattr(part, "bootstrap", "") != own:
        return part
    return _extended(part, "options", options)


def _secured_job(part: Part, own: str, options: Mapping[str, str]) -> Part:
    """The options of a job, which reads and may write."""
    bootstrap = getattr(part, "bootstrap", "")
    if (getattr(part, "source_bootstrap", "") or bootstrap) == own:
        part = _extended(part, "source", options)
    return _extended(part, "sink", options) if bootstrap == own else part


def _extended(part: Part, name: str, options: Mapping[str, str]) -> Part:
    given = getattr(part, name, None)
    if given is None or any(each.lower().startswith(_SECURITY) for each in given):
        return part
    return msgspec.structs.replace(part, **{name: {**options, **given}})


_SETTINGS = ClientSettings(client_id="dragoman-pipeline", operation_timeout_s=10.0)


def check_topics(definition: Definition) -> None:
    """Create missing topics of sinks with `partitions`; other missing topics raise.

    Raises `PipelineFileError` for a missing topic, and errors of the client (`UnreachableError`)
    when a broker does not answer.
    """
    #: Users may see different topics of a broker.
    known: dict[tuple[str, str], set[str]] = {}
    for part, bootstrap, topic, partitions, options in _topics(definition):
        try:
            tls, login = security_of(options)
        except ConfigError as error:
            raise PipelineFileError(f"{definition.file}: {part}: {error}") from None
        settings = msgspec.structs.replace(_SETTINGS, tls=tls, login=login)
        with BlockingKafkaClient(bootstrap, settings) as client:
            place = bootstrap, login.name if login else ""
            if place not in known:
                known[place] = {each.name for each in client.cluster().topics.values()}
            if topic in known[place]:
                continue
            if not partitions:
                near = difflib.get_close_matches(topic, known[place], n=1)
                remedy = f"is {near[0]!r} meant?" if near else f"`dragoman topic create {topic}`"
                if part.startswith("sinks."):
                    remedy += ", or set partitions = N here to create it"
                if login is not None:
                    remedy += f"; if it exists, {login.name!r} lacks `describe` on it"
                raise PipelineFileError(
                    f"{definition.file}: {part}: no topic {topic!r} at {bootstrap}; {remedy}"
                )
            with suppress(TopicExistsError):
                client.create_topic(NewTopic(name=topic, partitions=partitions))
            known[place].add(topic)


def _topics(
    definition: Definition,
) -> list[tuple[str, str, str, int, Mapping[str, str]]]:
    """Part, broker, topic, the partitions to create the topic with (0: it must exist), and the
    options of the part.
    """
    sources = [
        (f"sources.{name}", source.bootstrap, source.topic, 0, _texts(source.options))
        for name, source in definition.sources.items()
        if isinstance(source, TopicSource | CdcSource)
    ]
    sinks = [
        (f"sinks.{name}", sink.bootstrap, sink.topic, sink.partitions, _texts(sink.options))
        for name, sink in definition.sinks.items()
        if isinstance(sink, TopicSink)
    ]
    jobs = [
        (f"jobs.{name}", job.options.bootstrap, job.options.topic, 0, job.options.source)
        for name, job in definition.jobs.items()
        if job.type == "materialize" and not job.options.path
    ]
    return sources + sinks + jobs


def _texts(options: Mapping[str, OptionValue]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}
