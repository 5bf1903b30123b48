"""The console's captures, pipelines, dead letters, security and SQL, used as people use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from browser.chromium import Chromium
from browser.console_page import Page
from browser.console_sights import QUERY, type_query
from browser.console_world import ADMIN, DEAD, RETRY, SPARK_DEAD, World
from dragoman.limits import CONSOLE_QUERIES_MAX


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
    page.see("public.notes has no primary key or replica identity")
    page.wait("document.querySelector('[aria-label=\"Capture public.customers\"]')")
    page.browser.evaluate(
        "document.querySelector('[aria-label=\"Capture public.customers\"]').click()"
    )
    page.wait("document.querySelector('[name=tables]').value === 'public.customers'")
    page.click("Check and continue")
    page.see("4. Summary")
    assert world.database_password not in page.text(), "the summary shows no password"
    page.see("--dsn - --tables public.customers")
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
    page.open("#/dead-letters/+delayed/reminders")
    page.see("remind 3")
    page.see("later")
    page.browser.evaluate("document.querySelector('main tbody button').click()")
    page.see("Its time has not come.", "dialog")
    page.click("Close")
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
    page.click("Enable")
    page.see("Disable")


def quotas(page: Page, world: World) -> None:
    page.open("#/security/quotas")
    page.see("There are no quotas")
    page.click("Set quotas")
    page.type("Of", "user client_id")
    page.type("User", "carol")
    page.type("Bytes written", "1048576")
    page.type("Share", "0")
    page.click("Show what changes")
    page.see("request_percentage is a positive number", "dialog")
    page.type("Share", "12.5")
    page.click("Show what changes")
    page.see("1,048,576 bytes/s", "dialog")
    page.see("12.5 %", "dialog")
    page.see(
        "dragoman quota set producer_byte_rate=1048576 request_percentage=12.5 --for-user carol"
        " --default-client-id",
        "dialog",
    )
    assert world.quotas() == [], "a dry run has changed something"
    page.click("Apply", within="dialog")
    page.see("1.0 MiB/s")
    carols = {"user": "carol", "default_client_id": True}
    both = {"producer_byte_rate": 1048576, "request_percentage": 12.5}
    assert world.quotas() == [{"entity": carols, "quotas": both}]
    page.type_filter("nothing like it")
    page.see("Nothing fits the filter.")
    page.type_filter("percentage")
    page.see("12.5 %")
    page.click("Change", within="main")
    page.type("Share", "")
    page.type("Bytes read", "2048")
    page.click("Show what changes")
    page.see("2,048 bytes/s", "dialog")
    page.see("none", "dialog")
    page.see("&& dragoman quota remove request_percentage", "dialog")
    # Meanwhile, another user changes them.
    meanwhile = {"entity": carols, "set": {"producer_byte_rate": 4096}}
    world.ask("POST", "/api/v1/security/quotas", meanwhile)
    page.click("Apply", within="dialog")
    page.see("were changed meanwhile", "dialog")
    page.click("Show what changes")
    page.click("Apply", within="dialog")
    page.type_filter("")
    page.see("2.0 KiB/s")
    page.see("1.0 MiB/s")
    page.open("#/security/quotas?user=carol&client_id=shop")
    page.click("Ask")
    page.see("user carol, client id <default>")
    page.see("unlimited")
    page.see("dragoman quota test --for-user carol --client-id shop")
    page.click("Set quotas")
    page.type("Of", "address")
    page.type("Address", "nowhere")
    page.type("New connections", "5")
    page.click("Show what changes")
    page.see("'nowhere' is not an IP address", "dialog")
    page.type("Address", "")
    page.type("New connections", "5000")
    page.click("Show what changes")
    page.click("Apply", within="dialog")
    page.wait("!document.querySelector('dialog')")
    page.see("5,000/s", "main")
    page.click("Remove", within="main")
    page.see("Afterwards", "dialog")
    page.click("Remove", within="dialog")
    page.wait("!document.querySelector('dialog')")
    left = {"consumer_byte_rate": 2048, "producer_byte_rate": 1048576}
    assert world.quotas() == [{"entity": carols, "quotas": left}]
    page.see("No client that has a quota uses the answering node now.")
    admins = {"entity": {"user": ADMIN}, "set": {"controller_mutation_rate": 1000}}
    world.ask("POST", "/api/v1/security/quotas", admins)
    world.ask("POST", "/api/v1/topics", {"name": "counted"})
    page.open("#/security/quotas")
    page.see("within")


def sql(page: Page, world: World) -> None:
    page.open("#/sql?topic=sales")
    type_query(page, QUERY)
    page.click("Run")
    page.see("customer-6")
    page.see("7 rows in")
    type_query(page, "select foo\nfrom sales")
    page.click("Run")
    page.see("line 1, column 8")
    type_query(page, "select * from order")
    page.click("Run")
    page.see("syntax error")
    type_query(page, "select * from read_text('/etc/passwd')")
    page.click("Run")
    page.see("Permission Error")
    type_query(page, "select '<img src=x onerror=window.hacked=1>' as markup")
    page.click("Run")
    page.see("<img src=x")
    # More of them than may run at a time: each has ended when its reader is gone.
    for _ in range(CONSOLE_QUERIES_MAX + 1):
        type_query(page, "select count(*) from range(1000000000) a, range(1000000000) b")
        page.click("Run")
        page.see("Starting")
        page.click("Stop")
        page.see("Stopped.")
    type_query(page, QUERY)
    page.click("Run")
    page.see("7 rows in")


def read_only(_: Page, world: World) -> None:
    with Chromium({}) as browser:
        page = Page(browser, world.open_url)
        page.open("#/security")
        page.see("only reads")
        page.wait("document.querySelector('main button.primary').disabled")
        page.open("#/security/quotas")
        page.see("only reads")
        page.see("There are no quotas")
        assert "Remove" not in page.text(), "quotas are removed without a login"
        page.click("Ask")
        page.see("unlimited")
        page.open("#/captures/+add")
        for label in ("Name of the capture", "Host", "Database", "User", "File"):
            page.type(label, "x")
        page.click("Next")
        page.wait(
            "[...document.querySelectorAll('main button')].find((each) =>"
            " each.textContent === 'Check the database').disabled"
        )
        page.open("#/sql")
        type_query(page, "select 6 * 7 as answer")
        page.click("Run")
        page.see("42")


SCENARIOS: Final[tuple[Callable[[Page, World], None], ...]] = (
    captures,
    wizard,
    removal,
    pipelines,
    dead_letters,
    security,
    quotas,
    sql,
    read_only,
)
