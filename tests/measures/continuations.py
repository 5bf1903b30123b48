"""Continuations: callbacks that receive a result, or the error in its place.

Code that waits with `await` reads from top to bottom; code that passes a continuation does not.
Continuations are therefore kept to hot paths, where a coroutine would cost too much
(`hot_paths.py`, docs/decisions/0020-outcomes.md). They are recognised by their annotations:

* a parameter that is a callable without a result, and one of whose arguments is an error or may be
  one: `Callable[[int | DragomanError], None]`, `Acknowledge`;
* a parameter that is a callable without a result and is called what continuations are called here,
  such as `done` or `reply`;
* a parameter that is a callable which takes one of those;
* a nested function that receives a result or an error: `def placed(result: int | DragomanError)`.

Names of types are resolved in the module that uses them: through its type aliases and its imports.
A listener, `on_...`, is no continuation: it is called for every event, and need not be called.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from measures.source import Module

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_NAMES = frozenset({"done", "reply", "answer", "answered", "finish", "placed", "then", "take"})
_BUILT_IN_ERRORS = frozenset({"BaseException", "Exception", "OSError"})


class Continuation(NamedTuple):
    module: str
    line: int
    function: str
    #: The parameter, or None where the function itself is the continuation.
    parameter: str | None

    def __str__(self) -> str:
        parameter = "" if self.parameter is None else f"({self.parameter})"
        return f"{self.module}:{self.line} {self.function}{parameter}"


class Continuations:
    """Finds the continuations of modules that import each other."""

    def __init__(self, known: dict[str, Module]) -> None:
        self._known = known
        self._aliases = {
            (name, alias): value
            for name, module in known.items()
            for alias, value in _type_aliases(module)
        }
        self._imports = {name: _imported_names(module) for name, module in known.items()}
        self._bases = {
            (name, node.name): node.bases
            for name, module in known.items()
            for node in module.tree.body
            if isinstance(node, ast.ClassDef)
        }

    def everywhere(self) -> list[Continuation]:
        return [each for module in self._known.values() for each in self.of(module)]

    def of(self, module: Module) -> Iterator[Continuation]:
        for function, is_nested in _functions(module.tree, is_nested=False):
            found = [each.arg for each in _parameters(function) if self._is_one(module.name, each)]
            for parameter in found:
                yield Continuation(module.name, function.lineno, function.name, parameter)
            if is_nested and not found and self._receives_result(module.name, function):
                yield Continuation(module.name, function.lineno, function.name, None)

    # ---- types

    def _is_one(self, module: str, parameter: ast.arg) -> bool:
        if parameter.annotation is None or parameter.arg.startswith("on_"):
            return False
        is_named = parameter.arg.lstrip("_") in _NAMES
        return any(
            self._may_be_error(module_of, each) or is_named
            for module_of, arguments in self._callables(module, parameter.annotation)
            for each in arguments
        )

    def _receives_result(self, module: str, function: Function) -> bool:
        return any(
            each.annotation is not None
            and _is_union(each.annotation)
            and self._may_be_error(module, each.annotation)
            for each in _parameters(function)
        )

    def _callables(
        self, module: str, annotation: ast.expr, within: tuple[tuple[str, str], ...] = ()
    ) -> Iterator[tuple[str, list[ast.expr]]]:
        """The arguments of every callable without a result in an annotation, and the module in
        which their names hold. An alias may contain itself.
        """
        parts: tuple[ast.expr, ...] = ()
        match annotation:
            case ast.Subscript(
                value=ast.Name(id="Callable"), slice=ast.Tuple(elts=[given, result])
            ):
                if isinstance(given, ast.List):
                    if ast.unparse(result) in ("None", "object"):
                        yield module, given.elts
                    parts = tuple(given.elts)
            case ast.Constant(value=str(text)):
                parts = (ast.parse(text, mode="eval").body,)
            case ast.Name() | ast.Attribute():
                found = self._find(module, annotation)
                if found in self._aliases and found not in within:
                    within = (*within, found)
                    yield from self._callables(found[0], self._aliases[found], within)
            case ast.Subscript():
                parts = (annotation.value, annotation.slice)
            case ast.BinOp():
                parts = (annotation.left, annotation.right)
        for each in parts:
            yield from self._callables(module, each, within)

    def _may_be_error(self, module: str, annotation: ast.expr) -> bool:
        match annotation:
            case ast.BinOp():
                parts = (annotation.left, annotation.right)
                return any(self._may_be_error(module, each) for each in parts)
            case ast.Name(id=name) if name in _BUILT_IN_ERRORS:
                return True
            case ast.Name() | ast.Attribute():
                found = self._find(module, annotation)
                if found in self._aliases:
                    return self._may_be_error(found[0], self._aliases[found])
                if found == ("dragoman.errors", "DragomanError"):
                    return True
                bases = self._bases.get(found, ())
                return any(self._may_be_error(found[0], base) for base in bases)
            case _:
                return False

    def _find(self, module: str, name: ast.Name | ast.Attribute) -> tuple[str, str]:
        """Where a name is defined: the module, and what it is called there."""
        if isinstance(name, ast.Attribute):
            if not isinstance(name.value, ast.Name):
                return module, ast.unparse(name)
            holder, attribute = self._imports[module].get(name.value.id, (module, ""))
            found = (f"{holder}.{attribute}" if attribute else holder, name.attr)
        else:
            found = self._imports[module].get(name.id, (module, name.id))
        # A package may only pass a name on.
        while found[0] in self._imports and found[1] in self._imports[found[0]]:
            found = self._imports[found[0]][found[1]]
        return found


def _functions(node: ast.AST, *, is_nested: bool) -> Iterator[tuple[Function, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, is_nested
            yield from _functions(child, is_nested=True)
        else:
            within = is_nested and not isinstance(child, ast.ClassDef)
            yield from _functions(child, is_nested=within)


def _parameters(function: Function) -> list[ast.arg]:
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]


def _is_union(annotation: ast.expr) -> bool:
    return isinstance(annotation, ast.BinOp)


def _type_aliases(module: Module) -> Iterator[tuple[str, ast.expr]]:
    for node in module.tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                if ast.unparse(node.annotation).endswith("TypeAlias"):
                    yield name, value
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() as value):
                yield name, value


def _imported_names(module: Module) -> dict[str, tuple[str, str]]:
    """For each name, the module and what it is called there; "" for a module itself."""
    found = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                found[each.asname or each.name] = (node.module, each.name)
        elif isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name] = (each.name, "")
    return found
