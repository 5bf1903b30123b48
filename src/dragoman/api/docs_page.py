"""The page at `/docs`: the OpenAPI document for people, as plain HTML.

It is read without JavaScript, and needs nothing from other sites: its style and its script come
from this node, which the Content-Security-Policy demands. The script (`docs_page.js`) adds a form
that tries an operation which reads, with an API token where the node wants one.

The page is served without a login, since a browser could not send a token for it. It is the same on
every node of a release, and does not name the release.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dragoman.api.openapi import openapi_document

#: Nothing from elsewhere, nothing in line, and no page may frame this one.
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_STYLE: Final = "docs_page.css"
_SCRIPT: Final = "docs_page.js"
_Document = Mapping[str, Any]


#: Served to any client: they reveal nothing about the node.
DOCS_PATHS: Final = frozenset(("/docs", f"/docs/{_STYLE}", f"/docs/{_SCRIPT}"))


def docs_routes() -> list[Route]:
    return [
        Route("/docs", _page),
        Route(f"/docs/{_STYLE}", _style),
        Route(f"/docs/{_SCRIPT}", _script),
    ]


async def _page(_request: Request) -> Response:
    return Response(_html(), headers=_HEADERS, media_type="text/html")


async def _style(_request: Request) -> Response:
    return Response(_file(_STYLE), headers=_HEADERS, media_type="text/css")


async def _script(_request: Request) -> Response:
    return Response(_file(_SCRIPT), headers=_HEADERS, media_type="text/javascript")


@cache
def _file(name: str) -> bytes:
    return (Path(__file__).parent / name).read_bytes()


@cache
def _html() -> str:
    return page_of(openapi_document())


def page_of(document: _Document) -> str:
    """The page for an OpenAPI document; every text in it is escaped."""
    title = escape(f"{document['info']['title']} HTTP API")
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>",
        f'<link rel="stylesheet" href="/docs/{_STYLE}">',
        f'<script src="/docs/{_SCRIPT}" defer></script></head>',
        f"<body><header><h1>{title}</h1>",
        '<p>The same as an <a href="/openapi.json">OpenAPI document</a>.</p>',
        # Without a form and a name, browsers neither store it nor fill it in again.
        '<p id="login" hidden><label>API token <input id="token" type="password" '
        'autocomplete="off" spellcheck="false"></label> for requests from this page. It stays in '
        "the memory of the page.</p></header>",
        *_contents(document),
        "<main>",
    ]
    for path, method, operation in _operations(document):
        lines += _operation(path, method, operation)
    lines.append('<h2 id="schemas">Schemas</h2>')
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += _schema(name, schema)
    return "\n".join([*lines, "</main></body></html>"])


def _operations(document: _Document) -> Iterator[tuple[str, str, _Document]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _contents(document: _Document) -> Iterator[str]:
    yield "<nav><ul>"
    for path, method, operation in _operations(document):
        anchor = escape(operation["operationId"])
        yield f'<li><a href="#{anchor}"><b>{escape(method.upper())}</b> {escape(path)}</a></li>'
    yield '<li><a href="#schemas">Schemas</a></li></ul></nav>'


def _operation(path: str, method: str, operation: _Document) -> Iterator[str]:
    anchor = escape(operation["operationId"])
    yield f'<section id="{anchor}"><h2><b>{escape(method.upper())}</b> {escape(path)}</h2>'
    yield f"<p>{escape(operation['summary'])}</p>"
    parameters = operation.get("parameters", ())
    if parameters:
        yield from _table(
            ("parameter", "in", "type", "example", "meaning"),
            [_parameter(each) for each in parameters],
        )
    body = operation.get("requestBody")
    if body is not None:
        yield "<h3>Request body</h3>"
        yield from _content(body["content"])
    for status, answer in sorted(operation["responses"].items()):
        if status < "300":
            yield f"<h3>{escape(status)} {escape(answer['description'])}</h3>"
            yield from _content(answer.get("content", {}))
    refusals = sorted(each for each in operation["responses"] if each >= "300")
    yield f"<p>Errors: {escape(', '.join(refusals))}</p>"
    contents = [each.get("content", {}) for each in operation["responses"].values()]
    if method == "get" and not any("text/event-stream" in each for each in contents):
        yield from _form(path, parameters)
    yield "</section>"


def _parameter(parameter: _Document) -> Sequence[str]:
    kind, example = _type_of(parameter["schema"]), str(parameter.get("example", ""))
    return parameter["name"], parameter["in"], kind, example, parameter.get("description", "")


def _content(content: _Document) -> Iterator[str]:
    for media_type, described in content.items():
        kind = _type_of(described["schema"])
        yield f"<p>{escape(media_type)}: {_linked(kind)}</p>"
        if "example" in described:
            yield f"<pre>{escape(json.dumps(described['example'], indent=2))}</pre>"


def _form(path: str, parameters: Sequence[_Document]) -> Iterator[str]:
    """Shown by the script, which serves it."""
    yield f'<form class="try" data-path="{escape(path)}" hidden>'
    for each in parameters:
        name, place = escape(each["name"]), escape(each["in"])
        value = escape(str(each.get("example", "")))
        yield (
            f'<label>{name} <input name="{name}" data-in="{place}" value="{value}" '
            'autocomplete="off"></label>'
        )
    yield '<button>Try</button><pre class="result" hidden></pre></form>'


def _schema(name: str, schema: _Document) -> Iterator[str]:
    yield f'<section id="schema-{escape(name)}"><h3>{escape(name)}</h3>'
    if "description" in schema:
        yield f"<p>{escape(schema['description'])}</p>"
    required = schema.get("required", ())
    yield from _table(
        ("field", "type", "required"),
        [
            (field, _type_of(kind), "yes" if field in required else "")
            for field, kind in schema.get("properties", {}).items()
        ],
    )
    yield "</section>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "<table><tr>" + "".join(f"<th>{escape(each)}</th>" for each in heads) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{_linked(each)}</td>" for each in row) + "</tr>"
    yield "</table>"


def _type_of(schema: _Document) -> str:
    """A schema in a few words; `#Name` is a link to a schema."""
    if "$ref" in schema:
        return f"#{schema['$ref'].rpartition('/')[2]}"
    if "anyOf" in schema:
        return " | ".join(map(_type_of, schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    match schema.get("type"):
        case "array":
            return f"array of {_type_of(schema.get('items', {}))}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"map to {_type_of(schema['additionalProperties'])}"
        case None:
            return "any"
        case kind:
            bounds = [schema[each] for each in ("minimum", "maximum") if each in schema]
            return str(kind) + (f" {bounds[0]} to {bounds[1]}" if len(bounds) == 2 else "")


def _linked(text: str) -> str:
    """Escaped text, in which the names of schemas are links."""
    return " ".join(
        f'<a href="#schema-{escape(word[1:])}">{escape(word[1:])}</a>'
        if word.startswith("#") and len(word) > 1
        else escape(word)
        for word in text.split(" ")
    )
