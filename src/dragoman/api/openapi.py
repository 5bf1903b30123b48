"""The OpenAPI 3.1 document, made from the table of operations and the types of the values."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from dragoman import __version__, limits
from dragoman.api.operations import OPERATIONS, Operation
from dragoman.api.problems import MEDIA_TYPE
from dragoman.api.values import Problem

#: A refusal that any operation may answer: bad parameters, a fault, a node that is not ready.
_COMMON_REFUSALS = (400, 500, 503)


def openapi_document() -> dict[str, object]:
    types = [
        Problem,
        *(type_ for each in OPERATIONS for type_ in (each.answer, each.body) if type_),
    ]
    references, schemas = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    schema_of = dict(zip(types, references, strict=True))
    paths: dict[str, dict[str, object]] = {}
    for operation in OPERATIONS:
        entry = paths.setdefault(operation.path, {})
        entry[operation.method.lower()] = _operation(operation, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Dragoman", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(operation: Operation, schema_of: dict[type, dict[str, object]]) -> dict[str, object]:
    answers: dict[str, object] = {str(operation.status): _answer(operation, schema_of)}
    for status in sorted({*_COMMON_REFUSALS, *operation.refusals}):
        content = {MEDIA_TYPE: {"schema": schema_of[Problem]}}
        answers[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    document: dict[str, object] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": answers,
    }
    if operation.body is not None:
        content = {"application/json": {"schema": schema_of[operation.body]}}
        document["requestBody"] = {"required": True, "content": content}
    return document


def _answer(operation: Operation, schema_of: dict[type, dict[str, object]]) -> dict[str, object]:
    document: dict[str, object] = {"description": HTTPStatus(operation.status).phrase}
    if operation.answer is not None:
        document["content"] = {"application/json": {"schema": schema_of[operation.answer]}}
    return document


def _parameters(operation: Operation) -> list[dict[str, object]]:
    parameters: list[dict[str, object]] = []
    if "{name}" in operation.path:
        parameters.append(
            {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        )
    parameters += [
        {"name": name, "in": "query", "schema": {"type": "boolean"}} for name in operation.flags
    ]
    if operation.paged:
        limit = {"type": "integer", "minimum": 1, "maximum": limits.HTTP_PAGE_ITEMS_MAX}
        parameters += [
            {"name": "after", "in": "query", "schema": {"type": "string"}},
            {"name": "limit", "in": "query", "schema": limit},
        ]
    return parameters
