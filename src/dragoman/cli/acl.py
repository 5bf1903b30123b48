"""`dragoman acl`: add, remove, list and test access rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from cyclopts import App, Parameter

from dragoman import limits
from dragoman.api.access_values import (
    CLUSTER_NAME,
    AccessAnswer,
    AccessQuestion,
    AccessRule,
    AccessRuleFilter,
    AccessRules,
    Operation,
    Pattern,
    PatternFilter,
    Permission,
    RemovedRules,
    Resource,
    RulePage,
    RuleSearch,
)
from dragoman.api.values import Told
from dragoman.cli.output import Output, Table, show
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server
from dragoman.cli.status import FAILED, OK, USAGE, CommandError, say

app = App(name="acl", help="Add, remove, list and test access rules.")
_RULES = "/api/v1/security/rules"


def _option(text: str) -> Parameter:
    return Parameter(help=text, show_default=False)


@dataclass(frozen=True, kw_only=True)
class _Values:
    """Options that select rules by their values."""

    principal: Annotated[str | None, _option("User, or KIND:NAME.")] = None
    operation: Annotated[str | None, _option("Operation of the rule.")] = None
    resource: Annotated[str | None, _option("KIND:NAME, KIND:, or `cluster`.")] = None
    permission: Annotated[
        Literal["allow", "deny"] | None, _option("Rules that allow, or rules that deny.")
    ] = None
    pattern: Annotated[
        PatternFilter | None,
        _option("How the rule matches names. `match`: all rules that apply to the resource."),
    ] = None
    host: Annotated[str | None, _option("Host of the rule.")] = None

    def filter(self) -> AccessRuleFilter:
        """The rules that have all of the given values. Raises `CommandError`."""
        kind, name = None, ""
        if self.resource is not None:
            kind, name = _parse_resource(self.resource, is_filter=True)
        return AccessRuleFilter(
            principal=None if self.principal is None else _parse_principal(self.principal),
            operation=None if self.operation is None else _parse_operation(self.operation),
            resource=kind,
            name=name or None,
            permission=None if self.permission is None else Permission(self.permission),
            pattern=self.pattern,
            host=self.host,
        )


_Selected: TypeAlias = Annotated[_Values, Parameter(name="*")]
_ALL_RULES = _Values()


@app.command
def add(
    principal: str,
    operations: str,
    resource: str,
    /,
    *,
    deny: Annotated[bool, Parameter(negative="")] = False,
    prefixed: Annotated[bool, Parameter(negative="")] = False,
    host: str = "*",
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Add access rules: one for each operation.

    Parameters
    ----------
    principal
        User, or KIND:NAME; `*` for everyone.
    operations
        Operations, separated by commas: read, write, create, delete, alter, describe,
        describe_configs, alter_configs, cluster_action, idempotent_write, or all.
    resource
        KIND:NAME, where KIND is topic, group, transactional_id, user, capture or pipeline; or
        `cluster`. The name `*` means all of the kind.
    deny
        Deny the operations. A rule that denies takes precedence over all that allow.
    prefixed
        The rules are for all names that begin with the given one.
    host
        Address of the clients; `*` for all.
    """
    kind, name = _parse_resource(resource)
    rules = tuple(
        AccessRule(
            principal=_parse_principal(principal),
            operation=_parse_operation(operation),
            resource=kind,
            name=name,
            permission=Permission.DENY if deny else Permission.ALLOW,
            pattern=Pattern.PREFIXED if prefixed else Pattern.LITERAL,
            host=host,
        )
        for operation in operations.split(",")
    )
    Remote(server).post(_RULES, AccessRules(rules=rules), Told)
    if output != "table":
        show(output, rules, AccessRule)
        return
    for rule in rules:
        say(f"added: {rule}")


@app.command
def remove(
    *,
    values: _Selected = _ALL_RULES,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Remove the access rules that have all of the given values.

    Parameters
    ----------
    all_
        Remove all rules. Needed if no value is given.

    Examples
    --------
    dragoman acl remove --principal carol
    """
    wanted = values.filter()
    if (wanted == AccessRuleFilter()) != all_:
        raise CommandError("give values of the rules to remove, or --all for every rule", USAGE)
    removed = Remote(server).post(f"{_RULES}/removals", wanted, RemovedRules)
    match output:
        case "json":
            show(output, removed, RemovedRules)
        case "csv":
            show(output, removed.items, AccessRule)
        case "table":
            for rule in removed.items:
                say(f"removed: {rule}")
            say(f"removed rules: {removed.count}")


@app.command(name="list")
def list_rules(
    *,
    values: _Selected = _ALL_RULES,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """List access rules, in the order in which they were added.

    With `--pattern match`, all rules that apply to a resource are listed.

    Examples
    --------
    dragoman acl list --resource topic:orders --pattern match
    """
    rules = _found(Remote(server), values.filter())
    table = Table(
        ("PERMISSION", "PRINCIPAL", "HOST", "OPERATION", "RESOURCE", "PATTERN", "NAME"),
        (
            (
                each.permission.value,
                each.principal,
                each.host,
                each.operation.value,
                each.resource.value,
                each.pattern.value,
                each.name,
            )
            for each in rules
        ),
    )
    show(output, rules, AccessRule, table)


@app.command(name="test")
def answer(
    principal: str,
    operation: str,
    resource: str,
    /,
    *,
    host: str = "",
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> int:
    """Show whether the rules allow an operation, and which rule decides.

    The exit status is 0 if it is allowed and 1 if not, whether or not rules are enforced.

    Parameters
    ----------
    principal
        User, or KIND:NAME.
    operation
        Operation to test.
    resource
        KIND:NAME, or `cluster`.
    host
        Address of the client. Without it, only rules for all hosts count.

    Examples
    --------
    dragoman acl test alice read topic:orders --host 10.0.0.7
    """
    kind, name = _parse_resource(resource)
    question = AccessQuestion(
        principal=_parse_principal(principal),
        operation=_parse_operation(operation),
        resource=kind,
        name=name,
        host=host,
    )
    found = Remote(server).post(f"{_RULES}/tests", question, AccessAnswer)
    because = found.reason if found.rule is None else f"rule: {found.rule}"
    text = f"{'allowed' if found.allowed else 'denied'}, {because}"
    show(output, found, AccessAnswer, text)
    if output == "table" and found.mode != "enforce":
        say(f"the mode is {found.mode}: nothing is refused")
    return OK if found.allowed else FAILED


def _found(remote: Remote, wanted: AccessRuleFilter) -> list[AccessRule]:
    rules: list[AccessRule] = []
    after: int | None = 0
    for _ in range(limits.CLI_PAGES_MAX):
        search = RuleSearch(filter=wanted, after=after or 0)
        page = remote.post(f"{_RULES}/searches", search, RulePage)
        rules += page.items
        after = page.next
        if after is None:
            return rules
    raise CommandError(f"there are more than {limits.CLI_PAGES_MAX} pages of rules")


def _parse_principal(text: str) -> str:
    if not text:
        raise CommandError("PRINCIPAL: expected the name of a user, or KIND:NAME", USAGE)
    return text if ":" in text else f"User:{text}"


def _parse_operation(text: str) -> Operation:
    word = text.strip().lower().replace("-", "_")
    try:
        return Operation(word)
    except ValueError:
        known = ", ".join(each.value for each in Operation)
        raise CommandError(f"OPERATION: expected one of {known}, got {text!r}", USAGE) from None


def _parse_resource(text: str, *, is_filter: bool = False) -> tuple[Resource, str]:
    word, colon, name = text.partition(":")
    kind = word.strip().lower().replace("-", "_")
    if kind == Resource.CLUSTER.value and name in ("", CLUSTER_NAME):
        return Resource.CLUSTER, CLUSTER_NAME
    try:
        resource = Resource(kind)
    except ValueError:
        known = ", ".join(each.value for each in Resource)
        raise CommandError(f"RESOURCE: expected one of {known}, got {word!r}", USAGE) from None
    if not colon or not (name or is_filter):
        raise CommandError(f"RESOURCE: expected KIND:NAME, got {text!r}", USAGE)
    return resource, name
