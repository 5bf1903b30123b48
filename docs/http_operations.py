"""Writes docs/reference/http-operations.md from the OpenAPI document of a node.

    python docs/http_operations.py            rewrite it (`make docs`)

`tests/unit/api/test_http_reference.py` compares.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from dragoman.api.openapi import openapi_document

PAGE = Path(__file__).parent / "reference" / "http-operations.md"

_Document: TypeAlias = Mapping[str, Any]

_INTRODUCTION = """\
# HTTP operations

<!-- Written by `python docs/http_operations.py`; a test compares it with the code. -->

For programmers of clients of the JSON API: each operation with its parameters, a request and its
answer. [HTTP](http.md) says who may call them, how pages, records and streams work, and what errors
mean; [rights](rights.md#http) has the right that each needs. A node has the same at `/openapi.json`
and, with forms to try, at `/docs`.

Every operation may be answered 400, 401, 403, 500 and 503; *refused* lists what it adds to these.
"""

_SERVER = "http://127.0.0.1:8080"
_COMMON = {"400", "401", "403", "500", "503"}
#: Headings, by the part of the path after the version.
_SECTIONS = {
    "topics": "Topics and records",
    "topic-keys": "Topics and records",
    "usage": "Usage of topics and groups",
    "groups": "Groups",
    "cluster": "Cluster",
    "connections": "Connections and damage",
    "damage": "Connections and damage",
    "delayed": "Connections and damage",
    "captures": "Captures",
    "capture-checks": "Captures",
    "capture-tables": "Captures",
    "security": "Users, rules, keys and certificates",
    "pipelines": "Pipelines",
    "metrics": "Metrics",
    "livez": "Health",
    "readyz": "Health",
}


def reference_page() -> str:
    """The text of docs/reference/http-operations.md."""
    document = openapi_document()
    schemas: _Document = document["components"]["schemas"]  # type: ignore[index]
    sections: dict[str, list[str]] = {}
    bodies: list[str] = []
    for path, method, operation in _operations(document):
        part = path.removeprefix("/api/v1").split("/")[1]
        lines = sections.setdefault(_SECTIONS.get(part, part.capitalize()), [])
        lines += _operation(path, method, operation)
        bodies += _references(operation.get("requestBody", {}))
    text = _INTRODUCTION
    for title, lines in sections.items():
        text += f"\n## {title}\n\n" + "\n".join(lines)
    text += "\n## Types of request bodies\n\n"
    return text + "\n".join(
        line for name in _reached(bodies, schemas) for line in _type(name, schemas)
    )


def _operations(document: _Document) -> Iterator[tuple[str, str, _Document]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def _operation(path: str, method: str, operation: _Document) -> Iterator[str]:
    yield f"### `{method} {path}`\n"
    yield f"{operation['summary']}.\n"
    if parameters := operation.get("parameters"):
        yield "| parameter | in | type | meaning |\n|---|---|---|---|"
        for each in parameters:
            kind, meaning = _kind(each["schema"]) + _default(each["schema"]), each["description"]
            yield f"| `{each['name']}` | {each['in']} | {kind} | {meaning} |"
        yield ""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content:
        yield f"Body: {_kind(content['schema'])}.\n"
    yield f"```sh\n{_command(path, method, parameters or [], content)}\n```\n"
    yield from _answers(operation["responses"])


def _command(path: str, method: str, parameters: list[_Document], content: _Document | None) -> str:
    """The operation as `curl` sends it."""
    query = ""
    for each in parameters:
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(str(each["example"]), safe=""))
        elif "example" in each:
            query = f"?{each['name']}={each['example']}"
    words = ["curl"]
    if method not in ("GET", "POST") or (method == "POST" and content is None):
        words += ["-X", method]
    if "/events" in path:
        words.append("-N")
    words.append(shlex.quote(_SERVER + path + query))
    if content is None:
        return " ".join(words)
    body = shlex.quote(json.dumps(content["example"]))
    return f"{' '.join(words)} -H 'Content-Type: application/json' \\\n  -d {body}"


def _answers(responses: _Document) -> Iterator[str]:
    for status, answer in responses.items():
        if not status.startswith("2"):
            continue
        content = answer.get("content", {})
        if "application/json" in content:
            yield f"Answered {status}:\n"
            yield f"```json\n{_json(content['application/json']['example'])}\n```\n"
        elif content:
            yield f"Answered {status}, with `{next(iter(content))}`.\n"
        else:
            yield f"Answered {status}, without a body.\n"
    refusals = sorted(each for each in responses if each > "300" and each not in _COMMON)
    if refusals:
        yield f"Refused: {', '.join(refusals)}.\n"


# ---- types


def _reached(names: list[str], schemas: _Document) -> list[str]:
    """These types and those of their fields, in order of name."""
    found: set[str] = set()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            names += _references(schemas[name])
    return sorted(found)


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if "$ref" in schema:
            yield str(schema["$ref"]).rpartition("/")[2]
        for each in schema.values():
            yield from _references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)


def _type(name: str, schemas: _Document) -> Iterator[str]:
    schema = schemas[name]
    yield f"### {name}\n"
    if "description" in schema:
        yield " ".join(schema["description"].split()) + "\n"
    if "enum" in schema:
        yield f"{_kind(schema)}.\n"
        return
    yield "| field | type | default |\n|---|---|---|"
    for field, kind in schema.get("properties", {}).items():
        is_required = field in schema.get("required", ())
        default = "required" if is_required else f"`{json.dumps(kind.get('default'))}`"
        yield f"| `{field}` | {_kind(kind)} | {default} |"
    yield ""


def _kind(schema: _Document) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        kinds = [_kind(each) for each in schema["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"array of {_kind(schema.get('items', {}))}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of {_kind(schema['additionalProperties'])}"
        case None:
            return "any"
        case kind:
            bounds = [schema[each] for each in ("minimum", "maximum") if each in schema]
            within = f", {bounds[0]} to {bounds[1]}" if len(bounds) == 2 else ""
            return f"{kind}{within}"


def _default(schema: _Document) -> str:
    return f"; default {schema['default']}" if "default" in schema else ""


def _json(value: object) -> str:
    """Indented, with lists of plain values in one line."""
    text = json.dumps(value, indent=2)
    return re.sub(r"\[\s+([^\[\]{}]+?)\s+\]", lambda found: f"[{_joined(found[1])}]", text)


def _joined(lines: str) -> str:
    return " ".join(lines.split())


if __name__ == "__main__":
    PAGE.write_text(reference_page())
