"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31), versions 1 to 3: the access rules.

Kafka's clients see the rules for resources that Kafka has; those for captures and pipelines are
neither shown nor deleted. Unlike Kafka, which closes the connection, a number without a meaning is
answered with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dragoman.broker.access_rules import check_rule
from dragoman.broker.errors import InvalidRule
from dragoman.broker.work_queue import Steps
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.refusals import wire_code, wire_text
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.security.access import Operation, Resource
from dragoman.security.rule_filter import PatternFilter, RuleFilter
from dragoman.security.rules import Pattern, Permission, Rule

#: In place of a number of each kind: every one, in filters only.
_ANY: Final = 1
_RESOURCES: Final = {
    2: Resource.TOPIC,
    3: Resource.GROUP,
    4: Resource.CLUSTER,
    5: Resource.TRANSACTIONAL_ID,
    7: Resource.USER,
}
#: Of delegation tokens, which do not exist here: there are no rules for them.
_TOKEN: Final = 6
_OPERATIONS: Final = {
    2: Operation.ALL,
    3: Operation.READ,
    4: Operation.WRITE,
    5: Operation.CREATE,
    6: Operation.DELETE,
    7: Operation.ALTER,
    8: Operation.DESCRIBE,
    9: Operation.CLUSTER_ACTION,
    10: Operation.DESCRIBE_CONFIGS,
    11: Operation.ALTER_CONFIGS,
    12: Operation.IDEMPOTENT_WRITE,
}
#: Operations on delegation tokens, and two-phase commits of transactions by their clients.
_OTHER_OPERATIONS: Final = frozenset((13, 14, 15))
_PERMISSIONS: Final = {2: Permission.DENY, 3: Permission.ALLOW}
_PATTERNS: Final = {3: Pattern.LITERAL, 4: Pattern.PREFIXED}
_PATTERN_FILTERS: Final[dict[int, PatternFilter | None]] = {
    _ANY: None,
    2: "match",
    3: "literal",
    4: "prefixed",
}
_RESOURCE_NUMBERS: Final = {kind: number for number, kind in _RESOURCES.items()}
_OPERATION_NUMBERS: Final = {kind: number for number, kind in _OPERATIONS.items()}
_PERMISSION_NUMBERS: Final = {kind: number for number, kind in _PERMISSIONS.items()}
_PATTERN_NUMBERS: Final = {kind: number for number, kind in _PATTERNS.items()}


# ---- description


@awaited
async def handle_describe(call: Call) -> m.DescribeAclsResponse:
    request = call.decode(m.DescribeAclsRequest)
    broker = call.service.broker
    try:
        call.authorize_cluster(Operation.DESCRIBE)
        wanted = _filter(
            request.resource_type_filter,
            request.resource_name_filter,
            request.pattern_type_filter,
            request.principal_filter,
            request.host_filter,
            request.operation,
            request.permission_type,
        )
        found = await broker.access.rules.find(wanted)
    except DragomanError as error:
        return m.DescribeAclsResponse(error_code=wire_code(error), error_message=str(error))
    return await broker.work.run(_described(found))


def _described(rules: list[Rule]) -> Steps[m.DescribeAclsResponse]:
    by_resource: dict[tuple[Resource, str, Pattern], list[m.DescribeAclsResponseAcl]] = {}
    for rule in rules:
        acls = by_resource.setdefault((rule.resource, rule.name, rule.pattern), [])
        acls.append(
            m.DescribeAclsResponseAcl(
                principal=rule.principal,
                host=rule.host,
                operation=_OPERATION_NUMBERS[rule.operation],
                permission_type=_PERMISSION_NUMBERS[rule.permission],
            )
        )
        yield 1
    return m.DescribeAclsResponse(
        error_message=None,
        resources=[
            m.DescribeAclsResponseResource(
                resource_type=_RESOURCE_NUMBERS[kind],
                resource_name=name,
                pattern_type=_PATTERN_NUMBERS[pattern],
                acls=acls,
            )
            for (kind, name, pattern), acls in by_resource.items()
        ],
    )


# ---- creation


@awaited
async def handle_create(call: Call) -> m.CreateAclsResponse:
    request = call.decode(m.CreateAclsRequest)
    broker = call.service.broker
    results: list[DragomanError | None] = []
    rules: list[Rule] = []
    try:
        call.authorize_cluster(Operation.ALTER)
        for creation in request.creations:
            try:
                rule = _rule(creation)
                check_rule(rule)
            except InvalidRule as error:
                results.append(error.with_traceback(None))
            else:
                results.append(None)
                rules.append(rule)
        if rules:
            await broker.access.rules.add(rules, call.actor)
    except DragomanError as error:
        refusal = error.with_traceback(None)
        results = [
            refusal if result is None else result
            for result in results or [None] * len(request.creations)
        ]
    return m.CreateAclsResponse(
        results=[
            m.CreateAclsResponseResult(error_code=wire_code(each), error_message=wire_text(each))
            for each in results
        ]
    )


def _rule(creation: m.CreateAclsRequestCreation) -> Rule:
    """Raises `InvalidRule`."""
    resource = _RESOURCES.get(creation.resource_type)
    operation = _OPERATIONS.get(creation.operation)
    permission = _PERMISSIONS.get(creation.permission_type)
    pattern = _PATTERNS.get(creation.resource_pattern_type)
    if resource is None:
        raise InvalidRule(f"no rules exist for resource type {creation.resource_type}")
    if pattern is None:
        raise InvalidRule(f"no rule has pattern type {creation.resource_pattern_type}")
    if operation is None:
        raise InvalidRule(f"no rule has operation {creation.operation}")
    if permission is None:
        raise InvalidRule(f"no rule has permission type {creation.permission_type}")
    return Rule(
        principal=creation.principal,
        host=creation.host,
        operation=operation,
        permission=permission,
        resource=resource,
        pattern=pattern,
        name=creation.resource_name,
    )


# ---- deletion


class _Wanted(NamedTuple):
    """The filter of a deletion, or why there cannot be such a filter."""

    filter: RuleFilter | None
    error: DragomanError | None


@awaited
async def handle_delete(call: Call) -> m.DeleteAclsResponse:
    request = call.decode(m.DeleteAclsRequest)
    broker = call.service.broker
    wanted = [_wanted(each) for each in request.filters]
    try:
        call.authorize_cluster(Operation.ALTER)
        filters = [each.filter for each in wanted if each.filter is not None]
        found = await broker.access.rules.remove(filters, call.actor) if filters else []
    except DragomanError as error:
        refused = m.DeleteAclsResponseFilterResult(
            error_code=wire_code(error), error_message=str(error)
        )
        return m.DeleteAclsResponse(filter_results=[refused] * len(wanted))
    return await broker.work.run(_deleted(wanted, found))


def _wanted(requested: m.DeleteAclsRequestFilter) -> _Wanted:
    try:
        found = _filter(
            requested.resource_type_filter,
            requested.resource_name_filter,
            requested.pattern_type_filter,
            requested.principal_filter,
            requested.host_filter,
            requested.operation,
            requested.permission_type,
        )
    except InvalidRule as error:
        return _Wanted(None, error.with_traceback(None))
    return _Wanted(found, None)


def _deleted(wanted: list[_Wanted], found: list[list[Rule]]) -> Steps[m.DeleteAclsResponse]:
    results: list[m.DeleteAclsResponseFilterResult] = []
    deleted = iter(found)
    for each in wanted:
        rules = next(deleted) if each.filter is not None else []
        results.append(
            m.DeleteAclsResponseFilterResult(
                error_code=wire_code(each.error),
                error_message=wire_text(each.error),
                matching_acls=list(map(_matching, rules)),
            )
        )
        yield 1 + len(rules)
    return m.DeleteAclsResponse(filter_results=results)


def _matching(rule: Rule) -> m.DeleteAclsResponseMatchingAcl:
    return m.DeleteAclsResponseMatchingAcl(
        error_message=None,
        resource_type=_RESOURCE_NUMBERS[rule.resource],
        resource_name=rule.name,
        pattern_type=_PATTERN_NUMBERS[rule.pattern],
        principal=rule.principal,
        host=rule.host,
        operation=_OPERATION_NUMBERS[rule.operation],
        permission_type=_PERMISSION_NUMBERS[rule.permission],
    )


# ---- filters


def _filter(
    resource_type: int,
    name: str | None,
    pattern_type: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> RuleFilter:
    """Raises `InvalidRule` for a number that has no meaning."""
    if resource_type not in (_ANY, _TOKEN, *_RESOURCES):
        raise InvalidRule(f"resource type {resource_type} is not known")
    if pattern_type not in _PATTERN_FILTERS:
        raise InvalidRule(f"pattern type {pattern_type} is not known")
    if operation not in (_ANY, *_OTHER_OPERATIONS, *_OPERATIONS):
        raise InvalidRule(f"operation {operation} is not known")
    if permission not in (_ANY, *_PERMISSIONS):
        raise InvalidRule(f"permission type {permission} is not known")
    kinds: Sequence[Resource] = [kind] if (kind := _RESOURCES.get(resource_type)) else []
    if resource_type == _ANY:
        kinds = list(_RESOURCE_NUMBERS)
    if operation in _OTHER_OPERATIONS:
        # No rule has it.
        kinds = []
    return RuleFilter(
        resources=frozenset(kinds),
        name=name,
        pattern=_PATTERN_FILTERS[pattern_type],
        principal=principal,
        host=host,
        operation=_OPERATIONS.get(operation),
        permission=_PERMISSIONS.get(permission),
    )
