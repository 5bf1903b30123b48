"""`dragoman quota`: list, set, remove and test quotas of clients, and show their use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlencode

import msgspec
from cyclopts import App, Parameter

from dragoman import limits
from dragoman.api.quota_values import (
    ChangedQuota,
    ClientEntity,
    ClientQuota,
    ClientQuotaPage,
    DecidingQuota,
    QuotaAnswer,
    QuotaChange,
    QuotaQuestion,
    QuotaUse,
    QuotaUses,
)
from dragoman.cli.confirmation import DryRun
from dragoman.cli.output import Output, Table, note, show
from dragoman.cli.remote import CHECK_ONLY, DEFAULT_SERVER, Remote, Server
from dragoman.cli.status import USAGE, CommandError
from dragoman.cli.topic_settings import assignments

app = App(name="quota", help="Limit what clients use: list, set, remove and test quotas.")
_QUOTAS: Final = "/api/v1/security/quotas"
_DEFAULT: Final = "<default>"


def _option(text: str) -> Parameter:
    return Parameter(help=text, show_default=False)


def _flag(text: str) -> Parameter:
    return Parameter(help=text, negative="")


@dataclass(frozen=True, kw_only=True)
class _Entity:
    """Options that name whose quotas they are."""

    # `--user` is who logs in.
    for_user: Annotated[str, _option("Quotas of this user.")] = ""
    client_id: Annotated[str, _option("Quotas of this client id.")] = ""
    address: Annotated[str, _option("Quotas of this IP address.")] = ""
    default_user: Annotated[bool, _flag("Quotas of users without one of their own.")] = False
    default_client_id: Annotated[bool, _flag("Quotas of client ids without one of their own.")] = (
        False
    )
    default_address: Annotated[bool, _flag("Quotas of addresses without one of their own.")] = False

    def value(self) -> ClientEntity:
        return ClientEntity(
            user=self.for_user,
            client_id=self.client_id,
            address=self.address,
            default_user=self.default_user,
            default_client_id=self.default_client_id,
            default_address=self.default_address,
        )

    def named(self) -> ClientEntity:
        """Raises `CommandError` without any of the options."""
        found = self.value()
        if found == ClientEntity():
            raise CommandError(
                "give whose quotas they are, such as --for-user NAME or --default-client-id", USAGE
            )
        return found


_Named: TypeAlias = Annotated[_Entity, Parameter(name="*")]
_ALL: Final = _Entity()


@app.command(name="list")
def list_quotas(
    *, entity: _Named = _ALL, server: Server = DEFAULT_SERVER, output: Output = "table"
) -> None:
    """List quotas, or those of a user, a client id or an address.

    Quotas of a user together with a client id are among those of either.

    Examples
    --------
    dragoman quota list
    dragoman quota list --for-user alice
    """
    found = _found(Remote(server), entity.value())
    rows = (
        (*_names(each.entity), key, _text(value))
        for each in found
        for key, value in each.quotas.items()
    )
    show(
        output, found, ClientQuota, Table(("USER", "CLIENT ID", "ADDRESS", "QUOTA", "VALUE"), rows)
    )


@app.command(name="set")
def set_quotas(
    *values: str,
    entity: _Named = _ALL,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Set quotas of a user, a client id, both together, or an address.

    Parameters
    ----------
    values
        Quotas, as KEY=VALUE: producer_byte_rate, consumer_byte_rate, request_percentage and
        controller_mutation_rate; of an address connection_creation_rate.

    Examples
    --------
    dragoman quota set producer_byte_rate=1048576 --for-user alice
    dragoman quota set request_percentage=50 --default-user --client-id billing --dry-run
    dragoman quota set connection_creation_rate=20 --default-address
    """
    if not values:
        raise CommandError("VALUES: expected at least one KEY=VALUE", USAGE)
    new = {key: _number(key, text) for key, text in assignments("VALUES", values).items()}
    wanted = QuotaChange(entity=entity.named(), set=new)
    _change(Remote(server), wanted, dry_run=dry_run, output=output)


@app.command
def remove(
    *keys: str,
    entity: _Named = _ALL,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Remove quotas of a user, a client id, both together, or an address.

    Parameters
    ----------
    keys
        Quotas to remove, such as producer_byte_rate.
    all_
        Remove all quotas of the entity.

    Examples
    --------
    dragoman quota remove producer_byte_rate --for-user alice
    dragoman quota remove --all --default-client-id --dry-run
    """
    if bool(keys) == all_:
        raise CommandError("give the quotas to remove, or --all", USAGE)
    remote, named = Remote(server), entity.named()
    unset = _keys_of(remote, named) if all_ else dict.fromkeys(keys)
    wanted = QuotaChange(entity=named, unset=tuple(unset))
    _change(remote, wanted, dry_run=dry_run, output=output)


@app.command(name="test")
def answer(
    *,
    for_user: str = "ANONYMOUS",
    client_id: str = "",
    address: str = "",
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Show which quotas apply to a client, and whose they are.

    Parameters
    ----------
    for_user
        Name of the client's user.
    client_id
        Client id. Without it, as for HTTP and other protocols than Kafka's.
    address
        Address of the client. Without it, one that has no quota of its own.

    Examples
    --------
    dragoman quota test --for-user alice --client-id billing --address 10.0.0.7
    """
    question = QuotaQuestion(user=for_user, client_id=client_id, address=address)
    found = Remote(server).post(f"{_QUOTAS}/tests", question, QuotaAnswer).items
    rows = (
        (
            each.key,
            "unlimited" if each.value is None else _text(each.value),
            _described(each.entity),
        )
        for each in found
    )
    show(output, found, DecidingQuota, Table(("QUOTA", "VALUE", "QUOTA OF"), rows))


@app.command
def usage(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Show what clients use of their quotas on the node, and which are throttled now.

    Rates are those of the last eleven seconds. Names that clients share are shown: without a client
    id, all of a user count together.

    Examples
    --------
    dragoman quota usage
    """
    found = Remote(server).get(f"{_QUOTAS}/uses", QuotaUses)
    table = Table(
        ("QUOTA", "USER", "CLIENT ID", "ADDRESS", "RATE", "VALUE", "THROTTLED"),
        (
            (
                each.key,
                each.user,
                each.client_id,
                each.address,
                None if each.rate is None else f"{each.rate:.1f}",
                _text(each.quota),
                each.throttled,
            )
            for each in found.items
        ),
    )
    show(output, found.items, QuotaUse, table)
    if len(found.items) < found.counted:
        note(output, f"the node counts {found.counted} uses; those that rest are not shown")


def _found(remote: Remote, wanted: ClientEntity) -> list[ClientQuota]:
    filters = {
        name: "true" if value is True else str(value)
        for name, value in msgspec.structs.asdict(wanted).items()
        if value
    }
    found: list[ClientQuota] = []
    after: str | None = ""
    for _ in range(limits.CLI_PAGES_MAX):
        page = remote.get(f"{_QUOTAS}?{urlencode({**filters, 'after': after})}", ClientQuotaPage)
        found += page.items
        after = page.next
        if after is None:
            return found
    raise CommandError(
        f"there are more than {limits.CLI_PAGES_MAX} pages of quotas", code="invalid_answer"
    )


def _keys_of(remote: Remote, entity: ClientEntity) -> Iterable[str]:
    """Raises `CommandError` if the entity has no quotas."""
    for each in _found(remote, entity):
        if each.entity == entity:
            return each.quotas
    raise CommandError(f"there are no quotas of {_described(entity)}", code="unknown_quota")


def _change(remote: Remote, wanted: QuotaChange, *, dry_run: bool, output: Output) -> None:
    changed = remote.post(_QUOTAS + (CHECK_ONLY if dry_run else ""), wanted, ChangedQuota)
    show(output, changed, ChangedQuota, _difference(changed, [*wanted.set, *wanted.unset]))
    if dry_run:
        note(output, "nothing was changed")


def _difference(changed: ChangedQuota, keys: Sequence[str]) -> Table:
    rows = (
        (*_names(changed.entity), key, _value(changed.before, key), _value(changed.after, key))
        for key in keys
    )
    return Table(("USER", "CLIENT ID", "ADDRESS", "QUOTA", "VALUE", "NEW VALUE"), rows)


def _names(entity: ClientEntity) -> tuple[str | None, str | None, str | None]:
    return (
        _DEFAULT if entity.default_user else entity.user or None,
        _DEFAULT if entity.default_client_id else entity.client_id or None,
        _DEFAULT if entity.default_address else entity.address or None,
    )


def _described(entity: ClientEntity | None) -> str | None:
    if entity is None:
        return None
    kinds = zip(("user", "client id", "address"), _names(entity), strict=True)
    return ", ".join(f"{kind} {name}" for kind, name in kinds if name is not None)


def _number(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not isfinite(value):
        raise CommandError(f"{key}: expected a number, got {text!r}", USAGE)
    return value


def _value(quotas: Mapping[str, float], key: str) -> str | None:
    value = quotas.get(key)
    return None if value is None else _text(value)


def _text(value: float) -> str:
    """A number without a needless fraction."""
    return f"{value:.0f}" if value == int(value) else repr(value)
