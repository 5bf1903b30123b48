"""Pipelines as Python files, in which decorated functions are the parts.

    from dragoman.pipelines import pipeline, sink, source, transform

    pipeline(name="orders", trigger="once")

    @source(type="topic", topic="orders", decode="json")
    def orders(records):
        return records.select("value.*")

    @transform
    def large(orders):
        return orders.where("amount > 100")

    @sink(type="delta", path="large-orders")
    def table(large):
        return large

A parameter receives the table of its name. Decorators take the keys of a TOML file. A transform may
also return text, which is run as a query.
"""

from __future__ import annotations

import inspect
import runpy
import sys
from collections.abc import Callable
from contextvars import ContextVar
from os.path import abspath, dirname
from typing import Any, TypeVar, overload

import msgspec

from dragoman.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])


class Declared(msgspec.Struct, kw_only=True):
    """The content of a file before it is checked."""

    keys: dict[str, Any] = {}
    #: Part, such as `steps.NAME`, → function.
    functions: dict[str, Callable[..., Any]] = {}

    def add(self, table: str, function: Callable[..., Any], keys: dict[str, Any]) -> None:
        name = function.__name__
        if name in self.keys.setdefault(table, {}):
            raise ConfigError(f"{table}.{name} is declared twice")
        self.keys[table][name] = keys
        self.functions[f"{table}.{name}"] = function


_filling: ContextVar[Declared] = ContextVar("_filling")


def _declared() -> Declared:
    found = _filling.get(None)
    # A file that is imported or run directly just defines its functions.
    return Declared() if found is None else found


def declared_in(path: str, text: str) -> Declared:
    """Run a pipeline's Python file and collect its declarations. Raises `ConfigError`."""
    try:
        compile(text, path, "exec")
    except SyntaxError as error:
        raise ConfigError(f"line {error.lineno}: {error.msg}") from None
    directory = dirname(abspath(path))
    if directory not in sys.path:
        sys.path.insert(0, directory)
    declared = Declared()
    token = _filling.set(declared)
    try:
        # Not an importable module, so that Spark pickles its functions by value for workers.
        runpy.run_path(path, run_name="<pipeline>")
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 (a user's program)
        raise ConfigError(f"{type(error).__name__}: {error}") from None
    finally:
        _filling.reset(token)
    if not declared.keys:
        raise ConfigError("declares no pipeline; see `dragoman.pipelines.decorators`")
    return declared


def _place(function: Callable[..., Any]) -> str:
    return f"pipeline:{function.__name__}"


def pipeline(**keys: Any) -> None:
    """Declare the top level of a file: name, bootstrap, trigger, checkpoint, spark."""
    _declared().keys.update(keys)


@overload
def source(function: Function, /) -> Function: ...
@overload
def source(**keys: Any) -> Callable[[Function], Function]: ...
def source(function: Any = None, /, **keys: Any) -> Any:
    """Declare a source. With a type, the function receives the table that is read; else the
    session.
    """

    def declare(function: Function) -> Function:
        _declared().add(
            "sources", function, keys or {"type": "python", "function": _place(function)}
        )
        return function

    return declare if function is None else declare(function)


@overload
def transform(function: Function, /) -> Function: ...
@overload
def transform(**keys: Any) -> Callable[[Function], Function]: ...
def transform(function: Any = None, /, **keys: Any) -> Any:
    """Declare a step: a function whose parameters name its tables."""

    def declare(function: Function) -> Function:
        _declared().add("steps", function, {"python": _place(function), **keys})
        return function

    return declare if function is None else declare(function)


def sink(**keys: Any) -> Callable[[Function], Function]:
    """Declare a sink: a function of one table, which may transform the table before it is
    written.
    """

    def declare(function: Function) -> Function:
        parameters = list(inspect.signature(function).parameters)
        if len(parameters) != 1:
            raise ConfigError(f"sinks.{function.__name__}: takes one table, its only parameter")
        _declared().add("sinks", function, {"from": parameters[0], **keys})
        return function

    return declare
