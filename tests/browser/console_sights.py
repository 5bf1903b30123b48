"""What there is to see in the console: its screens, their states, and every dialog.

A dialog is named by the screen and the button that opens it. `act` does what brings a screen or a
dialog into the state that is to be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from browser.console_page import Page
from browser.console_world import DEAD, LONG

_DEAD = f"#/dead-letters/{DEAD.replace('%', '%25')}"
QUERY: Final = """select key, count(*) as records, sum((value->>'$.amount')::double) as amount
from sales group by key order by key"""


class Sight(NamedTuple):
    name: str
    address: str
    #: The button that opens the dialog; empty: there is none.
    opener: str = ""
    act: Callable[[Page], None] | None = None
    #: What is done before the dialog is opened.
    before: Callable[[Page], None] | None = None

    def open(self, page: Page) -> None:
        page.open(self.address)
        if self.before is not None:
            self.before(page)
        if self.opener:
            page.click(self.opener, within="main")
            page.wait("document.querySelector('dialog[open]')", f"{self.name} does not open")
        if self.act is not None:
            self.act(page)


# ---- what is done


def type_query(page: Page, text: str) -> None:
    page.browser.evaluate(f"document.querySelector('textarea.query').value = {text!r}")


def _sees(text: str) -> Callable[[Page], None]:
    return lambda page: page.see(text)


def _query(text: str, answer: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        type_query(page, text)
        page.click("Run")
        page.see(answer)

    return act


def _clicks(button: str, answer: str, within: str = "main") -> Callable[[Page], None]:
    def act(page: Page) -> None:
        page.click(button, within=within)
        page.see(answer)

    return act


def _typed(answer: str, **fields: str) -> Callable[[Page], None]:
    """Fill in a dialog, by the beginnings of labels, and have it show what would change."""

    def act(page: Page) -> None:
        for label, text in fields.items():
            page.type(label.replace("_", " "), text)
        page.click("Show what changes", within="dialog")
        page.see(answer, "dialog")

    return act


def _unfold(page: Page) -> None:
    """Open all details."""
    page.browser.evaluate("document.querySelectorAll('main details').forEach((e) => e.open = true)")


def _found(page: Page) -> None:
    page.wait("document.querySelector('tr[data-record]')", "no record is found")


def _choose_all(page: Page) -> None:
    page.click("Choose all shown")


def _filter_mistake(page: Page) -> None:
    _unfold(page)
    page.type("Filter", "value.amount = 7")
    page.click("Search")
    page.see("write ==")


def _counted(page: Page) -> None:
    page.wait("document.querySelector('[aria-label=Partitions] td.number')", "nothing is counted")


def _first_opened(page: Page) -> None:
    page.wait("document.querySelector('main tbody button')", "there is nothing to open")
    page.browser.evaluate("document.querySelector('main tbody button').click()")
    page.see("Its time has not come.", "dialog")


def _tailing(page: Page) -> None:
    page.wait("document.querySelector('tr[data-record]')", "the tail shows nothing")


def _wizard(*steps: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        for label in ("Name of the capture", "Host", "Database", "User", "File"):
            page.type(label, "example")
        for each in steps:
            page.click(each)
        if steps:
            page.see(f"{len(steps) + 1}. ")

    return act


def _resent(page: Page) -> None:
    page.browser.evaluate("document.querySelector('dialog [name=repeat]').click()")
    page.click("Show what changes", within="dialog")
    page.see("6 records would be sent.", "dialog")


# ---- screens

_ORDERS = "#/topics/orders"
_SHOP = "#/captures/shop"
_CAROL = "#/security/users/carol"

SCREENS: Final = (
    Sight("overview", "#/", act=_unfold),
    Sight("topics", "#/topics"),
    Sight("topic", _ORDERS),
    Sight("partitions", f"{_ORDERS}/partitions"),
    Sight("partitions-60", "#/topics/wide/partitions"),
    Sight("configuration", f"{_ORDERS}/configuration"),
    Sight("topic-long-name", f"#/topics/{LONG}", act=_unfold),
    Sight("records", f"{_ORDERS}/records", act=_found),
    Sight("records-form", f"{_ORDERS}/records", act=_unfold),
    Sight("records-values", "#/topics/values/records", act=_found),
    Sight("record-open", "#/topics/values/records?record=0:0", act=_sees("متجر")),
    Sight("record-emoji", "#/topics/values/records?record=0:1", act=_sees("龘")),
    Sight(
        "record-numbers", "#/topics/values/records?record=0:2", act=_sees("12345678901234567890123")
    ),
    Sight("record-long", "#/topics/values/records?record=0:3", act=_sees("unbroken")),
    Sight("record-tombstone", "#/topics/values/records?record=0:4", act=_sees("tombstone")),
    Sight("record-bytes", "#/topics/values/records?record=0:5", act=_sees("00 01 02")),
    Sight("records-mistake", f"{_ORDERS}/records", act=_filter_mistake),
    Sight(
        "records-none", f"{_ORDERS}/records?filter=key+%3D%3D+%22none%22", act=_sees("No record")
    ),
    Sight("statistics", f"{_ORDERS}/records?from=earliest&statistics=1", act=_counted),
    Sight("producers", f"{_ORDERS}/producers"),
    Sight("tail", f"{_ORDERS}/records?tail=1", act=_tailing),
    Sight("tail-of-topics", "#/tail?topics=orders&pattern=%5Epayments", act=_tailing),
    Sight("groups", "#/groups"),
    Sight("group", "#/groups/billing"),
    Sight("group-long-name", f"#/groups/{LONG}"),
    Sight("cluster", "#/cluster", act=_unfold),
    Sight("node-settings", "#/cluster/settings/1"),
    Sight("connections", "#/connections"),
    Sight("captures", "#/captures"),
    Sight("capture", _SHOP, act=_clicks("Check the database", "wal_level is logical")),
    Sight("capture-wizard", "#/captures/+add"),
    Sight("capture-wizard-check", "#/captures/+add", act=_wizard("Next")),
    Sight("capture-wizard-tables", "#/captures/+add", act=_wizard("Next", "Next")),
    Sight("pipelines", "#/pipelines"),
    Sight("pipeline", "#/pipelines/orders-by-shop"),
    Sight("dead-letters", "#/dead-letters"),
    Sight("delayed", "#/dead-letters/+delayed/reminders", act=_sees("remind 3")),
    Sight("delayed-record", "#/dead-letters/+delayed/reminders", act=_first_opened),
    Sight("dead-letter-topic", _DEAD),
    Sight("users", "#/security"),
    Sight("user", _CAROL),
    Sight("rules", "#/security/rules"),
    Sight(
        "test",
        "#/security/test?principal=User:carol&name=orders",
        act=_clicks("Ask", "User:carol may"),
    ),
    Sight(
        "quotas",
        "#/security/quotas?user=carol&client_id=shop",
        act=_clicks("Ask", "user carol, client id"),
    ),
    Sight("mode", "#/security/mode"),
    Sight("certificates", "#/security/certificates"),
    Sight("sql", "#/sql?topic=sales", act=_query(QUERY, "7 rows in")),
    Sight("sql-error", "#/sql?topic=sales", act=_query("select foo\nfrom sales", "line 1")),
)
#: What is not there.
MISSING: Final = (
    Sight("no-page", "#/nowhere"),
    Sight("no-topic", "#/topics/nowhere"),
    Sight("no-records", "#/topics/nowhere/records"),
    Sight("no-group", "#/groups/nowhere"),
    Sight("no-capture", "#/captures/nowhere"),
    Sight("no-pipeline", "#/pipelines/nowhere"),
    Sight("no-dead-letters", "#/dead-letters/nowhere"),
    Sight("no-tail", "#/tail?pattern=%5Enowhere", act=_sees("no topic matches")),
    Sight("no-user", "#/security/users/nowhere"),
)
DIALOGS: Final = (
    Sight("create-topic", "#/topics", "Create topic"),
    Sight(
        "create-topic-checked",
        "#/topics",
        "Create topic",
        _typed("The node accepts", Name=LONG.replace("a", "b"), Partitions="60"),
    ),
    Sight("create-topic-refused", "#/topics", "Create topic", _typed("exists", Name="orders")),
    Sight("create-similar", _ORDERS, "Create similar"),
    Sight("add-partitions", f"{_ORDERS}/partitions", "Add partitions", _typed("Afterwards")),
    Sight("truncate", f"{_ORDERS}/partitions", "Truncate", _typed("would be deleted")),
    Sight("truncate-60", "#/topics/wide", "Truncate", _typed("would be deleted")),
    Sight("delete-topic", _ORDERS, "Delete", _sees("cannot be undone")),
    Sight("delete-topic-long", f"#/topics/{LONG}", "Delete", _sees("cannot be undone")),
    Sight("change-key", f"{_ORDERS}/configuration", "Change"),
    Sight("reset-key", f"{_ORDERS}/configuration", "Reset", _sees("Afterwards")),
    Sight("produce", f"{_ORDERS}/records", "Produce"),
    Sight("find-message", f"{_ORDERS}/records", "Find by key or id"),
    Sight("copy-records", "#/topics/sales/records", "Copy to a topic"),
    Sight(
        "copy-records-checked",
        "#/topics/sales/records",
        "Copy to a topic",
        _typed("would be copied", To_the_topic="payments"),
    ),
    Sight("reset-group", f"#/groups/{LONG}", "Reset offsets", _typed("Nothing changes")),
    Sight(
        "reset-group-long",
        f"#/groups/{LONG}",
        "Reset offsets",
        _clicks("Latest", "Reset", "dialog"),
    ),
    Sight("delete-group", f"#/groups/{LONG}", "Delete group", _sees("begins anew")),
    Sight("delete-offsets", f"#/groups/{LONG}", "Delete offsets", _sees("Partitions whose")),
    Sight("close-connection", "#/connections", "Close"),
    Sight(
        "move-replicas",
        "#/cluster",
        "Move replicas",
        _typed("may be copied", Topic="wide", To_the="1"),
    ),
    Sight("elect", "#/cluster", "Elect preferred leaders", _typed("is elected for")),
    Sight("transfer", "#/cluster", "Transfer metadata"),
    Sight("add-node", "#/cluster", "Add node"),
    Sight("relieve", "#/cluster", "Relieve", _sees("no other live node")),
    Sight("drain", "#/cluster", "Drain", _sees("no other live node")),
    Sight("remove-node", "#/cluster", "Remove", _sees("It holds")),
    Sight("change-setting", "#/cluster", "Change a setting"),
    Sight("pause-capture", _SHOP, "Pause"),
    Sight("snapshot-capture", _SHOP, "Snapshot"),
    Sight("rewind-capture", _SHOP, "Rewind"),
    Sight("remove-capture", _SHOP, "Remove"),
    Sight("dead-letter", _DEAD, "0/0", _sees("rocketmq.TAGS")),
    Sight("resend", _DEAD, "Resend 6", before=_choose_all),
    Sight("resend-tried", _DEAD, "Resend 6", _resent, before=_choose_all),
    Sight("create-user", "#/security", "Create user"),
    Sight("make-token", _CAROL, "Make a token"),
    Sight("revoke-token", _CAROL, "Revoke"),
    Sight("disable-user", _CAROL, "Disable"),
    Sight("set-password", _CAROL, "Set password"),
    Sight("remove-password", _CAROL, "Remove password"),
    Sight("set-signing-secret", _CAROL, "Set signing secret"),
    Sight("delete-user", _CAROL, "Delete"),
    Sight("add-rule", "#/security/rules", "Add rule"),
    Sight("remove-rule", "#/security/rules", "Remove"),
    Sight("set-quotas", "#/security/quotas", "Set quotas"),
    Sight(
        "set-quotas-checked",
        "#/security/quotas",
        "Set quotas",
        _typed("Afterwards", User="a" * 200, Bytes_written="5", Partitions="7"),
    ),
    Sight("change-quotas", "#/security/quotas", "Change"),
    Sight("remove-quota", "#/security/quotas", "Remove", _sees("Afterwards")),
    Sight("change-mode", "#/security/mode", "Change to open"),
    Sight("encrypt-anew", "#/security/certificates", "Encrypt secrets anew"),
)


def screens_of_nothing() -> Iterator[Sight]:
    """The screens of a node that has nothing yet, and where no user is logged in."""
    for name in ("", "topics", "groups", "cluster", "captures", "pipelines", "dead-letters"):
        yield Sight(f"empty-{name or 'overview'}", f"#/{name}")
    for name in (
        "connections",
        "security",
        "security/rules",
        "security/quotas",
        "security/mode",
        "sql",
    ):
        yield Sight(f"empty-{name.replace('/', '-')}", f"#/{name}")
