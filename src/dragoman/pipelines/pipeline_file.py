"""Parses a file to a `Definition`: TOML, or Python with decorators. Errors name the key.

pipelines/orders.toml: sources.orders: unknown key 'decod'; is 'decode' meant?
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn, TypeVar

import msgspec

from dragoman.errors import ConfigError
from dragoman.limits import PIPELINE_FILE_BYTES_MAX, PIPELINE_PARTS_MAX
from dragoman.pipelines.decorators import Declared, declared_in
from dragoman.pipelines.definition import (
    CdcSource,
    Definition,
    Head,
    Job,
    SecurityKeys,
    Sink,
    Source,
    SparkKeys,
    Step,
    TableSource,
    TopicSink,
    TopicSource,
    check_name,
    check_table_name,
)
from dragoman.pipelines.step_order import in_order, tables_in

#: Modules of `pipelines/jobs`, each with `Options` and `run`.
JOBS = ("materialize", "tier", "replay", "profile")
#: The options of jobs that hold paths.
_JOB_PATHS = ("table", "path", "checkpoint", "folder", "root", "tier")
#: Paths with a scheme are passed to Spark unchanged.
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_UNKNOWN = re.compile(r"Object contains unknown field `(.+?)`(?: - at `\$\.?(.*)`)?\Z")
_ELSEWHERE = re.compile(r"(.+?) - at `\$\.?(.*)`\Z", re.DOTALL)

Struct = TypeVar("Struct", bound=msgspec.Struct)


class PipelineFileError(ConfigError):
    """A pipeline's file is malformed, or names something that does not exist."""


def load(path: str) -> Definition:
    """Read and check a pipeline's file, except for what only a broker or Spark can check."""
    if os.path.isdir(path):
        path = os.path.join(path, "pipeline.toml")
    text = _content(path)
    with _errors_of(path):
        if path.endswith(".py"):
            declared = declared_in(path, text)
        elif path.endswith(".toml"):
            declared = Declared(keys=_parsed(text))
        else:
            raise ConfigError("expected a file in TOML (.toml) or Python (.py)")
        return _Checker(os.path.abspath(path), declared).definition()


def _content(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(PIPELINE_FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PipelineFileError(
            f"{path}: {reason}; `dragoman pipeline init` writes a project to begin with"
        ) from None
    if len(content) > PIPELINE_FILE_BYTES_MAX:
        raise PipelineFileError(f"{path}: larger than {PIPELINE_FILE_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise PipelineFileError(f"{path}: not UTF-8: {error}") from None


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from None


@contextmanager
def _errors_of(where: str) -> Iterator[None]:
    """A context that converts errors to errors that name the file or the part."""
    try:
        yield
    except (ConfigError, ValueError) as error:
        raise PipelineFileError(f"{where}: {error}") from None


class _Checker:
    def __init__(self, file: str, declared: Declared) -> None:
        self._file = file
        self._directory = os.path.dirname(file)
        self._functions = declared.functions
        self._head = converted(declared.keys, Head)

    def definition(self) -> Definition:
        head = self._head
        parts = len(head.sources) + len(head.steps) + len(head.sinks) + len(head.jobs)
        if parts > PIPELINE_PARTS_MAX:
            raise ConfigError(f"{parts} parts are too many: at most {PIPELINE_PARTS_MAX}")
        if not head.sinks and not head.jobs:
            raise ConfigError("nothing is written anywhere: add a table [sinks.NAME]")
        sources = {name: self._source(name, keys) for name, keys in head.sources.items()}
        steps = {name: self._step(name, keys) for name, keys in head.steps.items()}
        self._check_names(sources, steps)
        tables = [*sources, *steps]
        order = in_order({name: self._needs(name, step, tables) for name, step in steps.items()})
        sinks = {name: self._sink(name, keys, tables) for name, keys in head.sinks.items()}
        return Definition(
            file=self._file,
            name=head.name,
            bootstrap=head.bootstrap,
            trigger=head.trigger,
            checkpoint=self._path(head.checkpoint) if head.checkpoint else "",
            spark=head.spark,
            security=head.security and self._security(head.security),
            sources=sources,
            steps={name: steps[name] for name in order},
            sinks=sinks,
            jobs={name: self._job(name, keys) for name, keys in head.jobs.items()},
            functions=self._functions,
        )

    def _security(self, keys: SecurityKeys) -> SecurityKeys:
        """The keys with absolute paths."""
        files = {"ca": keys.ca, "certificate": keys.certificate, "key": keys.key}
        changes = {name: self._path(path) for name, path in files.items() if path}
        kind, _, place = keys.password.partition(":")
        if kind == "file":
            changes["password"] = f"file:{self._path(place)}"
        return _replaced(keys, **changes)

    def _check_names(self, sources: Mapping[str, Source], steps: Mapping[str, Step]) -> None:
        seen: dict[str, str] = {}
        for table, names in (("sources", sources), ("steps", steps)):
            for name in names:
                if (other := seen.setdefault(name.lower(), f"{table}.{name}")) != f"{table}.{name}":
                    raise ConfigError(f"{table}.{name}: {other} has this name already")

    def _source(self, name: str, keys: dict[str, Any]) -> Source:
        with _errors_of(f"sources.{name}"):
            check_table_name(name)
            source: Source = converted(keys, Source)
            match source:
                case TopicSource() | CdcSource():
                    return _replaced(source, bootstrap=source.bootstrap or self._head.bootstrap)
                case TableSource():
                    return _replaced(source, path=self._path(source.path))
                case _:
                    self._import(f"sources.{name}", source.function)
                    return source

    def _step(self, name: str, keys: dict[str, Any]) -> Step:
        with _errors_of(f"steps.{name}"):
            check_table_name(name)
            step: Step = converted(keys, Step)
            if step.python:
                self._import(f"steps.{name}", step.python)
            return step

    def _import(self, part: str, function: str) -> None:
        """Import a function, so that a missing one is reported before Spark starts."""
        if part not in self._functions:
            self._functions[part] = function_of(function, self._directory)

    def _needs(self, name: str, step: Step, tables: Collection[str]) -> list[str]:
        """The tables that a step needs. Raises when a function names one that is not declared."""
        known = {each.lower(): each for each in tables}
        if step.sql:
            # Other names may be tables that Spark knows.
            return [known[each] for each in tables_in(step.sql) if each in known]
        with _errors_of(f"steps.{name}"):
            return [
                known.get(each.lower()) or _refused(unknown("input", each, tables))
                for each in inputs_of(step, self._functions[f"steps.{name}"])
            ]

    def _sink(self, name: str, keys: dict[str, Any], tables: Collection[str]) -> Sink:
        with _errors_of(f"sinks.{name}"):
            check_name(name)
            sink: Sink = converted(keys, Sink)
            by_name = {each.lower(): each for each in tables}
            if sink.source.lower() not in by_name:
                raise ConfigError(unknown("from: source or step", sink.source, tables))
            sink = _replaced(sink, source=by_name[sink.source.lower()])
            if isinstance(sink, TopicSink):
                return _replaced(sink, bootstrap=sink.bootstrap or self._head.bootstrap)
            if hasattr(sink, "path"):
                return _replaced(sink, path=self._path(sink.path))
            return sink

    def _job(self, name: str, keys: dict[str, Any]) -> Job:
        with _errors_of(f"jobs.{name}"):
            check_name(name)
            return _replaced_paths(job_of(keys, self._head.bootstrap), self._directory)

    def _path(self, path: str) -> str:
        return absolute(path, self._directory)


def absolute(path: str, directory: str) -> str:
    """A path relative to a folder as an absolute one; paths with a scheme are unchanged."""
    if _SCHEME.match(path):
        return path
    return os.path.normpath(os.path.join(directory, os.path.expanduser(path)))


def _replaced_paths(job: Job, directory: str) -> Job:
    paths = {
        name: absolute(path, directory)
        for name in _JOB_PATHS
        if isinstance(path := getattr(job.options, name, None), str) and path
    }
    return Job(type=job.type, options=_replaced(job.options, **paths))


def inputs_of(step: Step, function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the tables that a function gets, in order."""
    return step.inputs or tuple(inspect.signature(function).parameters)


def _refused(problem: str) -> NoReturn:
    raise ConfigError(problem)


def job_of(keys: Mapping[str, Any], bootstrap: str, *, is_text: bool = False) -> Job:
    """A job by its `type`, with options as its module declares them."""
    given = dict(keys)
    kind = given.pop("type", "")
    if kind not in JOBS:
        raise ConfigError(unknown("type", str(kind), JOBS))
    options = import_module(f"dragoman.pipelines.jobs.{kind}").Options
    if "bootstrap" in options.__struct_fields__:
        given.setdefault("bootstrap", bootstrap)
    if is_text:
        given = {name: _from_text(value, name, options) for name, value in given.items()}
    return Job(type=kind, options=converted(given, options, strict=not is_text))


def _from_text(value: str, name: str, kind: Any) -> Any:
    """The text as a list where the option is one; `A=B,C=D` as a mapping."""
    wanted = {field.encode_name: str(field.type) for field in msgspec.structs.fields(kind)}
    if "dict" in wanted.get(name, ""):
        return dict(each.partition("=")[::2] for each in value.split(","))
    if "tuple" in wanted.get(name, "") or "list" in wanted.get(name, ""):
        return [each.strip() for each in value.split(",")]
    return value


def single_job(kind: str, keys: Mapping[str, str], bootstrap: str) -> Definition:
    """A pipeline of one job, from the command line, where options are text."""
    with _errors_of(kind):
        given = dict(keys)
        name = given.pop("name", "") or _job_name(kind, keys)
        check_name(name)
        job = job_of({"type": kind, **given}, bootstrap, is_text=True)
        job = _replaced_paths(job, os.getcwd())
        if kind == "materialize" and not job.options.checkpoint:
            # The job is named after its topic, so a second table of the topic needs another
            # checkpoint.
            place = job.options.checkpoint_path
            job = Job(type=kind, options=_replaced(job.options, checkpoint=place))
    return Definition(
        file=kind,
        name=name,
        bootstrap=bootstrap,
        trigger="once",
        checkpoint="",
        spark=SparkKeys(),
        sources={},
        steps={},
        sinks={},
        jobs={kind: job},
    )


def _job_name(kind: str, keys: Mapping[str, str]) -> str:
    about = keys.get("topic") or keys.get("table") or ""
    return re.sub(r"[^a-z0-9_.-]+", "-", f"{kind}-{about}".lower()).strip("-")[:63]


def converted(keys: Mapping[str, Any], kind: Any, *, strict: bool = True) -> Any:
    """Keys as the struct, or the member of the union of structs, that they declare."""
    try:
        return msgspec.convert(keys, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigError(_plainly(str(error), keys, kind)) from None


def _plainly(problem: str, keys: Mapping[str, Any], kind: Any) -> str:
    if found := _UNKNOWN.match(problem):
        key, where = found[1], found[2]
        inner = _keys_of(kind, keys, where)
        return f"{where + ': ' if where else ''}{unknown('key', key, inner)}"
    if found := re.match(r"Object missing required field `(\w+)`", problem):
        return f"{found[1]!r} is missing"
    if found := re.match(r"Invalid value (.+) - at `\$\.type`", problem):
        return unknown("type", found[1].strip("'"), _tags(kind))
    if found := _ELSEWHERE.match(problem):
        return f"{found[2]}: {found[1][0].lower()}{found[1][1:]}" if found[2] else found[1]
    return problem


def _members(kind: Any) -> tuple[Any, ...]:
    return getattr(kind, "__args__", ()) or (kind,)


def _tags(kind: Any) -> list[str]:
    return [str(each.__struct_config__.tag) for each in _members(kind)]


def _keys_of(kind: Any, keys: Mapping[str, Any], where: str | None) -> list[str]:
    """The keys that are known at a place."""
    for each in _members(kind):
        if len(_members(kind)) > 1 and each.__struct_config__.tag != keys.get("type"):
            continue
        if not where:
            return [field.encode_name for field in msgspec.structs.fields(each)]
        for field in msgspec.structs.fields(each):
            if field.encode_name == where.partition(".")[0]:
                inner = [one for one in _members(field.type) if hasattr(one, "__struct_fields__")]
                return [name for one in inner for name in one.__struct_fields__]
    return []


def unknown(what: str, name: str, choices: Collection[str]) -> str:
    near = difflib.get_close_matches(name, choices, n=1)
    if near:
        return f"unknown {what} {name!r}; is {near[0]!r} meant?"
    return f"unknown {what} {name!r}" + (f"; expected {', '.join(choices)}" if choices else "")


def _replaced(value: Struct, **changes: object) -> Struct:
    return msgspec.structs.replace(value, **changes)


def function_of(name: str, directory: str) -> Callable[..., Any]:
    """A function by `module:function`, from a module beside the file or an installed one."""
    module, _, attribute = name.partition(":")
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{name}: {error}") from None
    if not callable(found):
        raise ConfigError(f"{name} is not a function")
    function: Callable[..., Any] = found
    return function
