"""DescribeClientQuotas (48) and AlterClientQuotas (49), versions 0 and 1: quotas are stored and
shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.broker.quotas import ADDRESS, ENTITY_KINDS, Component, Match
from dragoman.errors import DecodeError, DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import UnsupportedVersionError
from dragoman.protocols.kafka.handlers.refusals import wire_code, wire_text
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.protocols.kafka.handlers.slices import gather
from dragoman.security.access import Operation

_MATCHES: Final = {0: Match.EXACT, 1: Match.DEFAULT, 2: Match.ANY}


def handle_describe(call: Call) -> None:
    request = call.decode(m.DescribeClientQuotasRequest)
    try:
        call.authorize_cluster(Operation.DESCRIBE_CONFIGS)
        components = _components(request.components)
    except DragomanError as error:
        call.reply(
            m.DescribeClientQuotasResponse(
                error_code=wire_code(error), error_message=str(error), entries=None
            )
        )
        return
    found = call.service.broker.quotas.find(components, strict=request.strict)
    call.reply(
        m.DescribeClientQuotasResponse(
            error_message=None,
            entries=[
                m.DescribeClientQuotasResponseEntry(
                    entity=[
                        m.DescribeClientQuotasResponseEntity(entity_type=kind, entity_name=name)
                        for kind, name in entity
                    ],
                    values=[
                        m.DescribeClientQuotasResponseValue(key=key, value=value)
                        for key, value in sorted(limits.items())
                    ],
                )
                for entity, limits in found
            ],
        )
    )


def _components(requested: list[m.DescribeClientQuotasRequestComponent]) -> list[Component]:
    kinds = [each.entity_type for each in requested]
    if len(set(kinds)) < len(kinds):
        raise DecodeError("an entity type is in the filter more than once")
    if ADDRESS in kinds and len(kinds) > 1:
        raise DecodeError("an ip cannot be combined with a user or client-id")
    return [_component(each) for each in requested]


def _component(requested: m.DescribeClientQuotasRequestComponent) -> Component:
    if not requested.entity_type:
        raise DecodeError("an entity type is empty")
    if requested.entity_type not in ENTITY_KINDS:
        raise UnsupportedVersionError(f"there is no entity type {requested.entity_type!r}")
    match = _MATCHES.get(requested.match_type)
    if match is None:
        raise DecodeError(f"match type {requested.match_type} is not known")
    if (match is Match.EXACT) == (requested.match is None):
        raise DecodeError("an exact match needs a name, and no other has one")
    return Component(requested.entity_type, match, requested.match)


@awaited
async def handle_alter(call: Call) -> m.AlterClientQuotasResponse:
    request = call.decode(m.AlterClientQuotasRequest)
    quotas = call.service.broker.quotas

    async def alter(entry: m.AlterClientQuotasRequestEntry) -> None:
        call.authorize_cluster(Operation.ALTER_CONFIGS)
        entity = _entity(entry)
        changes = _changes(entry)
        if request.validate_only:
            quotas.check(entity, changes)
        else:
            await quotas.change(entity, changes, call.actor)

    return _altered(request.entries, await gather(call, request.entries, alter))


def _entity(entry: m.AlterClientQuotasRequestEntry) -> dict[str, str | None]:
    entity = {each.entity_type: each.entity_name for each in entry.entity}
    if len(entity) < len(entry.entity):
        raise DecodeError("an entity type is in the entity more than once")
    return entity


def _changes(entry: m.AlterClientQuotasRequestEntry) -> dict[str, float | None]:
    changes = {each.key: None if each.remove else each.value for each in entry.ops}
    if len(changes) < len(entry.ops):
        raise DecodeError("a quota is in the entry more than once")
    return changes


def _altered(
    entries: list[m.AlterClientQuotasRequestEntry], results: Sequence[DragomanError | None]
) -> m.AlterClientQuotasResponse:
    return m.AlterClientQuotasResponse(
        entries=[
            m.AlterClientQuotasResponseEntry(
                error_code=wire_code(error),
                error_message=wire_text(error),
                entity=[
                    m.AlterClientQuotasResponseEntity(
                        entity_type=each.entity_type, entity_name=each.entity_name
                    )
                    for each in entry.entity
                ],
            )
            for entry, error in zip(entries, results, strict=True)
        ]
    )
