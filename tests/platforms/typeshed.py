"""Which names of a module of the standard library a platform lacks, as mypy's stubs say."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path


def missing(module: str, platform: str) -> set[str]:
    """Names that the module has on Linux and not on the platform, as `sys.platform` names it."""
    return _names(module, "linux") - _names(module, platform)


def _names(module: str, platform: str) -> set[str]:
    found = find_spec("mypy")
    assert found is not None
    assert found.origin is not None
    stubs = Path(found.origin).parent / "typeshed" / "stdlib"
    path = next(
        each for each in (stubs / f"{module}.pyi", stubs / module / "__init__.pyi") if each.exists()
    )
    return set(_defined(ast.parse(path.read_text()).body, platform))


def _defined(body: list[ast.stmt], platform: str) -> Iterator[str]:
    for each in body:
        match each:
            case ast.If():
                branch = each.body if _holds(each.test, platform) else each.orelse
                yield from _defined(branch, platform)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield each.name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case ast.ImportFrom():
                yield from (alias.asname or alias.name for alias in each.names)


def _holds(test: ast.expr, platform: str) -> bool:
    """Conditions of stubs compare only the platform and the version."""

    class Stub:
        version_info = sys.version_info

    Stub.platform = platform  # type: ignore[attr-defined]
    return bool(
        eval(compile(ast.Expression(test), "stub", "eval"), {"sys": Stub, "TYPE_CHECKING": True})
    )
