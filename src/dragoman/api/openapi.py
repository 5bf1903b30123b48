"""The OpenAPI 3.1 document, generated from the operations and the types of their values."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from dragoman import __version__
from dragoman.api.declaration import EventStream, Operation, Parameter
from dragoman.api.examples import example_of, parameter_example
from dragoman.api.meanings import meaning_of
from dragoman.api.operations import OPERATIONS
from dragoman.api.problems import MEDIA_TYPE
from dragoman.api.values import Health, Problem

#: Error statuses of every operation: bad parameters, no login, no right, a quota, a fault, a node
#: that is not ready.
_COMMON_REFUSALS = (400, 401, 403, 429, 500, 503)
#: Credentials, where the listener looks at any; on some, requests without are served, too.
_SECURITY_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer"},
    "password": {"type": "http", "scheme": "basic"},
}

#: The pages for probes, which are no operations: every client is answered.
_HEALTH: dict[str, tuple[str, str, dict[str, object]]] = {
    "/livez": (
        "is_live",
        "Whether the node runs; 503 when only a new start would help",
        {"status": "live", "checks": [{"name": "journal", "status": "ok", "detail": ""}]},
    ),
    "/readyz": (
        "is_ready",
        "Whether clients should use the node, check by check",
        {
            "status": "degraded",
            "checks": [
                {"name": "recovery", "status": "ok", "detail": ""},
                {"name": "disk", "status": "warning", "detail": "52,428,800 bytes are free"},
            ],
        },
    ),
}


def openapi_document() -> dict[str, object]:
    types: list[type] = [Problem, Health]
    for each in OPERATIONS:
        kinds = (each.answer, each.body and each.body.type)
        types += [kind for kind in kinds if kind not in (None, EventStream)]  # type: ignore[misc]
    references, schemas = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    schema_of = dict(zip(types, references, strict=True))
    paths: dict[str, dict[str, object]] = {}
    for operation in OPERATIONS:
        entry = paths.setdefault(operation.path, {})
        entry[operation.method.lower()] = _operation(operation, schema_of)
    paths |= {path: {"get": _health(*texts, schema_of)} for path, texts in _HEALTH.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Dragoman", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": _SECURITY_SCHEMES},
        "security": [{}, *({name: []} for name in _SECURITY_SCHEMES)],
    }


def _health(
    name: str, summary: str, example: dict[str, object], schema_of: dict[type, dict[str, object]]
) -> dict[str, object]:
    content = {
        "text/plain": {"schema": {"type": "string"}},
        "application/json": {"schema": schema_of[Health], "example": example},
    }
    return {
        "operationId": name,
        "summary": summary,
        "security": [{}],
        "parameters": [
            {
                "name": "format",
                "in": "query",
                "description": "JSON instead of text, as with `Accept: application/json`.",
                "schema": {"type": "string", "enum": ["json"]},
            },
            {
                "name": "verbose",
                "in": "query",
                "description": "A line for each check.",
                "allowEmptyValue": True,
                "schema": {"type": "string"},
            },
        ],
        "responses": {
            "200": {"description": "OK", "content": content},
            "503": {"description": "Service Unavailable", "content": content},
        },
    }


def _operation(operation: Operation, schema_of: dict[type, dict[str, object]]) -> dict[str, object]:
    answers: dict[str, object] = {str(operation.status): _answer(operation, schema_of)}
    if operation.may_be_empty:
        answers["204"] = {"description": HTTPStatus.NO_CONTENT.phrase}
    for status in sorted({*_COMMON_REFUSALS, *operation.refusals}):
        content = {MEDIA_TYPE: {"schema": schema_of[Problem]}}
        answers[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    document: dict[str, object] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [_parameter(operation, each) for each in operation.parameters],
        "responses": answers,
    }
    if operation.body is not None:
        kind = operation.body.type
        described = {"schema": schema_of[kind], "example": example_of(kind)}
        body = {"required": True, "content": {"application/json": described}}
        document["requestBody"] = body
    return document


def _answer(operation: Operation, schema_of: dict[type, dict[str, object]]) -> dict[str, object]:
    document: dict[str, object] = {"description": HTTPStatus(operation.status).phrase}
    if operation.answer is EventStream:
        document["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    elif operation.answer is not None:
        kind = operation.answer
        described = {"schema": schema_of[kind], "example": example_of(kind)}
        document["content"] = {"application/json": described}
    return document


def _parameter(operation: Operation, parameter: Parameter) -> dict[str, object]:
    required = {"required": True} if parameter.place == "path" else {}
    value = parameter_example(operation, parameter)
    example = {} if value is None else {"example": value}
    return {
        "name": parameter.type.header or parameter.name,
        "in": parameter.place,
        "description": meaning_of(operation.path, parameter),
        **required,
        "schema": parameter.type.schema,
        **example,
    }
