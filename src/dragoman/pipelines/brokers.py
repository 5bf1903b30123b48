"""Which brokers the parts of a pipeline connect to, and others in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from dragoman.errors import ConfigError
from dragoman.pipelines.definition import Definition, Job

Part = TypeVar("Part", bound=msgspec.Struct)
_KEYS = ("bootstrap", "source_bootstrap")


def with_bootstrap(definition: Definition, bootstrap: str) -> Definition:
    """The definition with another address for its broker.

    A pipeline that connects two clusters stays one: only the file's own `bootstrap` is replaced
    then. Raises `ConfigError` when no part uses that, so that it is not known which is meant.
    """
    used = _used(definition)
    replaced = used if len(used) == 1 else used & {definition.bootstrap}
    if used and not replaced:
        raise ConfigError(
            f"--bootstrap: the pipeline connects to {' and '.join(sorted(used))}, "
            "and the file does not say which of them is its own `bootstrap`"
        )
    jobs = {
        name: Job(type=job.type, options=_moved(job.options, replaced, bootstrap))
        for name, job in definition.jobs.items()
    }
    return msgspec.structs.replace(
        definition,
        bootstrap=bootstrap,
        sources=_all_moved(definition.sources, replaced, bootstrap),
        sinks=_all_moved(definition.sinks, replaced, bootstrap),
        jobs=jobs,
    )


def _used(definition: Definition) -> set[str]:
    options = [job.options for job in definition.jobs.values()]
    parts = [*definition.sources.values(), *definition.sinks.values(), *options]
    return {value for part in parts for key in _KEYS if (value := getattr(part, key, ""))}


def _all_moved(parts: Mapping[str, Part], replaced: set[str], bootstrap: str) -> dict[str, Part]:
    return {name: _moved(part, replaced, bootstrap) for name, part in parts.items()}


def _moved(part: Part, replaced: set[str], bootstrap: str) -> Part:
    changes = {key: bootstrap for key in _KEYS if getattr(part, key, "") in replaced}
    return msgspec.structs.replace(part, **changes)
