"""The console's captures, pipelines, dead letters, security and SQL in a real browser.

Part of `make browser`. Needs Chromium, and npm for axe-core.

A node enforces rules, captures a PostgreSQL database, and has dead letters and a pipeline's report.
Each page is looked at by axe in light and dark, and must fit windows of 1280 and 390 pixels.
`--pictures DIR` keeps pictures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from browser.axe import serious_findings
from browser.chromium import BrowserError, Chromium
from browser.console_page import Page
from browser.console_world import DEAD, PASSWORD, RETRY, SPARK_DEAD, USER, World
from dragoman.limits import CONSOLE_QUERIES_MAX

_SCHEMES = ("light", "dark")
_WIDTHS = (1280, 390)
_QUERY = """select key, count(*) as records, sum((value->>'$.amount')::double) as amount
from orders group by key order by key"""


# ---- scenarios


def captures(page: Page, world: World) -> None:
    page.open("#/captures")
    page.see("streaming")
    page.open("#/captures/shop")
    page.see("public.purchases")
    page.see("500")
    page.click("Check the database")
    page.see("wal_level is logical")
    assert "********" in page.text(), "the address is shown with its password hidden"
    page.click("Pause")
    page.click("Pause", within="dialog")
    page.see("Resume")
    world.wait(lambda: world.capture("shop")["paused"], "the pause")
    page.click("Resume")
    page.see("Pause")
    page.click("Snapshot")
    page.type("Tables", "public.purchases")
    page.click("Snapshot", within="dialog")
    page.see("The snapshot begins.")


def wizard(page: Page, world: World) -> None:
    page.open("#/captures/+add")
    host, port = world.database_address
    for label, text in (
        ("Name of the capture", "notes"),
        ("Host", host),
        ("Port", port),
        ("Database", "postgres"),
        ("User", "postgres"),
        ("Password", "typed"),
    ):
        page.type(label, text)
    page.wait("document.querySelector('[name=secret]').type === 'password'")
    page.browser.evaluate(
        f"document.querySelector('[name=secret]').value = {world.database_password!r}"
    )
    page.type("TLS", "disable")
    page.click("Next")
    page.click("Check the database")
    page.see("wal_level is logical")
    page.click("Next")
    page.type("Tables", "customers")
    page.click("Check and continue")
    page.see("4. Summary")
    assert world.database_password not in page.text(), "the summary shows no password"
    page.see("--dsn - --tables customers")
    page.click("Add the capture")
    page.see("Snapshot by table")
    world.wait(lambda: world.capture("notes")["status"]["state"] == "streaming", "the new capture")


def removal(page: Page, world: World) -> None:
    page.open("#/captures/notes")
    page.click("Remove")
    page.type("Type notes to confirm", "notes")
    page.click("Remove", within="dialog")
    page.see("Add a capture")
    world.wait(lambda: "notes" not in world.captures(), "the removal")


def pipelines(page: Page, world: World) -> None:
    page.open("#/pipelines")
    page.see("orders-by-shop")
    page.open("#/pipelines/orders-by-shop")
    page.see("5,200 rows")
    page.see("worker-1")


def dead_letters(page: Page, world: World) -> None:
    page.open("#/dead-letters")
    page.see(DEAD)
    page.see(SPARK_DEAD)
    page.see("reminders")
    page.see("delayed and held records on node 1")
    page.open(f"#/dead-letters/{DEAD.replace('%', '%25')}")
    page.see("<script>window.hacked = 1</script>")
    page.click("Choose all shown")
    boxes = "document.querySelectorAll('main td input:checked').length === 6"
    page.wait(boxes, "what is chosen is not checked")
    page.click("Resend 6")
    page.click("Show what changes")
    page.see("6 records would be sent.", "dialog")
    assert world.records(RETRY) == [], "a dry run has sent something"
    page.click("Send", within="dialog")
    page.see("What was sent")
    page.click("Close")
    assert len(world.records(RETRY)) == 6
    page.click("Choose all shown")
    page.click("Resend 6")
    page.click("Show what changes")
    page.see("sent before", "dialog")
    page.see("None of these can be sent.", "dialog")
    page.wait("document.querySelector('dialog button.primary').disabled", "sends nothing")
    page.click("Cancel")
    page.open(f"#/dead-letters/{SPARK_DEAD}")
    page.see("malformed JSON at byte 1")
    page.click("0/0")
    page.see("a-1", "dialog")


def security(page: Page, world: World) -> None:
    page.open("#/security")
    page.click("Create user")
    page.type("Name", "carol")
    page.type("Password", "a long password")
    page.click("Create", within="dialog")
    page.see("Rules for this user")
    page.click("Make a token")
    page.type("Label", "dashboards")
    page.click("Make", within="dialog")
    page.see("cannot be shown again")
    page.click("Close")
    page.see("dashboards")
    page.open("#/security/rules")
    page.click("Add rule")
    page.browser.evaluate(
        "(() => { const [p, n] = ['principal', 'name'].map((each) =>"
        " document.querySelector(`dialog [name=${each}]`)); p.value = 'carol'; n.value = 'orders';"
        " n.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    page.see("dragoman acl add carol read topic:orders")
    page.click("Add", within="dialog")
    page.see("User:carol")
    page.open("#/security/test?principal=User:carol&name=orders")
    page.click("Ask")
    page.see("User:carol may read topic orders.")
    page.see("allow User:carol read on topic orders")
    page.open("#/security/mode")
    page.see("enforce")
    page.open("#/security/certificates")
    page.see("Current key")
    page.open("#/security/users/carol")
    page.click("Disable")
    page.click("Disable", within="dialog")
    page.see("Enable")


def sql(page: Page, world: World) -> None:
    page.open("#/sql?topic=orders")
    _type_query(page, _QUERY)
    page.click("Run")
    page.see("customer-6")
    page.see("7 rows in")
    _type_query(page, "select foo\nfrom orders")
    page.click("Run")
    page.see("line 1, column 8")
    _type_query(page, "select * from order")
    page.click("Run")
    page.see("syntax error")
    _type_query(page, "select * from read_text('/etc/passwd')")
    page.click("Run")
    page.see("Permission Error")
    _type_query(page, "select '<img src=x onerror=window.hacked=1>' as markup")
    page.click("Run")
    page.see("<img src=x")
    # More of them than may run at a time: each has ended when its reader is gone.
    for _ in range(CONSOLE_QUERIES_MAX + 1):
        _type_query(page, "select count(*) from range(1000000000) a, range(1000000000) b")
        page.click("Run")
        page.see("Starting")
        page.click("Stop")
        page.see("Stopped.")
    _type_query(page, _QUERY)
    page.click("Run")
    page.see("7 rows in")


def read_only(_: Page, world: World) -> None:
    with Chromium({}) as browser:
        page = Page(browser, world.open_url)
        page.open("#/security")
        page.see("only reads")
        page.wait("document.querySelector('main button.primary').disabled")
        page.open("#/captures/+add")
        for label in ("Name of the capture", "Host", "Database", "User", "File"):
            page.type(label, "x")
        page.click("Next")
        page.wait(
            "[...document.querySelectorAll('main button')].find((each) =>"
            " each.textContent === 'Check the database').disabled"
        )
        page.open("#/sql")
        _type_query(page, "select 6 * 7 as answer")
        page.click("Run")
        page.see("42")


def _type_query(page: Page, text: str) -> None:
    page.browser.evaluate(f"document.querySelector('textarea.query').value = {text!r}")


SCENARIOS: dict[str, Callable[[Page, World], None]] = {
    "captures": captures,
    "wizard": wizard,
    "removal": removal,
    "pipelines": pipelines,
    "dead letters": dead_letters,
    "security": security,
    "sql": sql,
    "read only": read_only,
}


# ---- looks


def _run_query(page: Page) -> None:
    _type_query(page, _QUERY)
    page.click("Run")
    page.see("7 rows in")


def _check_database(page: Page) -> None:
    page.click("Check the database")
    page.see("wal_level is logical")


def _ask(page: Page) -> None:
    page.click("Ask")
    page.see("User:carol may")


#: Pages, and what is done on them before they are looked at.
PAGES: dict[str, tuple[str, Callable[[Page], None] | None]] = {
    "captures": ("#/captures", None),
    "capture": ("#/captures/shop", _check_database),
    "capture-wizard": ("#/captures/+add", None),
    "pipelines": ("#/pipelines", None),
    "pipeline": ("#/pipelines/orders-by-shop", None),
    "dead-letters": ("#/dead-letters", None),
    "dead-letter-topic": (f"#/dead-letters/{DEAD.replace('%', '%25')}", None),
    "users": ("#/security", None),
    "user": ("#/security/users/carol", None),
    "rules": ("#/security/rules", None),
    "test": ("#/security/test?principal=User:carol&name=orders", _ask),
    "mode": ("#/security/mode", None),
    "certificates": ("#/security/certificates", None),
    "sql": ("#/sql?topic=orders", _run_query),
}


def look(page: Page, pictures: Path | None) -> list[str]:
    faults = []
    for width in _WIDTHS:
        for scheme in _SCHEMES:
            page.resize(width, scheme)
            for name, (address, act) in PAGES.items():
                where = f"{name}, {scheme}, {width} px"
                page.open(address)
                if act is not None:
                    act(page)
                if page.overflows():
                    faults.append(f"{where}: wider than its window")
                faults += [f"{where}: {each}" for each in serious_findings(page.browser)]
                if pictures is not None:
                    page.picture(pictures / f"{name}-{scheme}-{width}.png")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--only", choices=SCENARIOS, help="one scenario, and no looks")
    arguments = parser.parse_args()
    pictures = arguments.pictures
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
    faults = []
    with World() as world, Chromium({}) as browser:
        page = Page(browser, world.url)
        page.resize(1280)
        page.log_in(USER, PASSWORD)
        for name, scenario in SCENARIOS.items():
            if arguments.only not in (None, name):
                continue
            try:
                scenario(page, world)
                print(f"{name}: ok", flush=True)
            except (AssertionError, BrowserError, TimeoutError) as error:
                faults.append(f"{name}: {error}")
        if browser.evaluate("window.hacked"):
            faults.append("a page has run what a record says")
        if arguments.only is None:
            faults += look(page, pictures)
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrowserError as error:
        sys.exit(f"browser: {error}")
