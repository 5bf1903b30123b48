"""What happens to a user's work when the console is interrupted: the session ends, the node dies,
another user changes the same thing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from browser.chromium import Chromium
from browser.console_page import Page
from browser.console_process import ConsoleProcess, settings_of
from browser.console_world import ADMIN, PASSWORD, VIEWER, World, ask_as_admin
from browser.locked_nodes import create_users, options
from dragoman.client.kafka import NewRecord
from nodes.cluster import ServedCluster

#: Seconds that a login lasts where it is to end meanwhile.
_LIFE_S: Final = 6
_SHOWN: Final = "document.querySelector('tbody').innerText"
_COUNTERS: Final = "document.querySelector('.counters').innerText"
_AGAIN: Final = "document.querySelector('dialog.again')"


@contextmanager
def _browser(url: str) -> Iterator[Page]:
    with Chromium({}) as browser:
        page = Page(browser, url)
        page.resize(1280)
        yield page


def _log_in_again(page: Page, user: str = ADMIN) -> None:
    page.see("Your session has ended", "dialog.again")
    page.type("User", user)
    page.type("Password", PASSWORD)
    page.click("Log in", within="dialog.again")


def dialog_outlives_its_session(_: Page, world: World) -> None:
    settings = settings_of(world.broker, session_life_s=_LIFE_S)
    with ConsoleProcess(settings) as console, _browser(console.url) as page:
        page.log_in(ADMIN, PASSWORD)
        page.open("#/topics")
        page.click("Create topic")
        page.type("Name", "outlived")
        page.type("Partitions", "4")
        # The page refreshes itself until its session has ended.
        page.wait(_AGAIN, "the page does not ask for a login")
        page.wait(f"{_AGAIN}.querySelector('[name=user]').value === '{ADMIN}'")
        page.press("Escape")
        page.wait(_AGAIN, "Escape discards what was typed")
        page.type("User", ADMIN)
        page.type("Password", "wrong")
        page.click("Log in", within="dialog.again")
        page.see("wrong", "dialog.again .problem")
        page.type("Password", PASSWORD)
        page.click("Log in", within="dialog.again")
        page.wait(f"!{_AGAIN}", "the login stays")
        page.click("Show what changes", within="dialog")
        page.see("The node accepts this topic", "dialog")
        page.click("Create", within="dialog")
        page.see("outlived is created.")
    assert len(world.ask("GET", "/api/v1/topics/outlived")["partitions"]) == 4


def refused_request_is_repeated_after_the_login(_: Page, world: World) -> None:
    with ConsoleProcess(settings_of(world.broker)) as console, _browser(console.url) as page:
        page.log_in(ADMIN, PASSWORD)
        page.open("#/sql?topic=sales")
        page.browser.evaluate("document.querySelector('textarea.query').value = 'select 6 * 7'")
        console.kill()
        console.start()
        page.click("Run")
        _log_in_again(page)
        page.see("42")


def another_user_begins_anew(_: Page, world: World) -> None:
    with ConsoleProcess(settings_of(world.broker)) as console, _browser(console.url) as page:
        page.log_in(ADMIN, PASSWORD)
        page.open("#/topics")
        page.click("Create topic")
        page.type("Name", "of-alice")
        console.kill()
        console.start()
        _log_in_again(page, VIEWER)
        page.wait("!document.querySelector('dialog')", "the dialog of the other user stays")
        page.see(f"{VIEWER} · Log out")


def tail_continues_when_its_console_returns(_: Page, world: World) -> None:
    world.ask("POST", "/api/v1/topics", {"name": "followed"})
    with (
        world.client() as client,
        ConsoleProcess(settings_of(world.broker)) as console,
        _browser(console.url) as page,
    ):

        def write(text: str) -> None:
            client.produce_records("followed", [NewRecord(value=text.encode())])

        page.log_in(ADMIN, PASSWORD)
        page.open("#/topics/followed/records?tail=1")
        page.wait(f"{_COUNTERS}.includes('0 records matched')", "the tail does not begin")
        write("before")
        page.wait(f"{_SHOWN}.includes('before')")
        page.wait(f"{_COUNTERS}.includes('1 record matched')", "a record is not counted")
        console.kill()
        page.see("The tail continues by itself", ".warning")
        page.see("with the records that are written meanwhile", ".warning")
        write("meanwhile")
        console.start()
        _log_in_again(page)
        page.wait(f"{_SHOWN}.includes('meanwhile')", "what was written meanwhile is not shown")
        page.wait("!document.querySelector('.warning')", "the interruption stays on the page")
        write("after")
        page.wait(f"{_SHOWN}.includes('after')", "the tail does not continue")
        page.wait(f"{_COUNTERS}.includes('3 records matched')", "the counters begin anew")


def tail_continues_when_its_node_was_killed(_: Page, __: World) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="browser-") as root,
        ServedCluster(Path(root), 1, *options(Path(root)), listeners=("console",)) as nodes,
    ):
        nodes.start(1, cluster=[])
        create_users(nodes)
        with _browser(f"http://{nodes.address(1, 'console')}/") as page:

            def write(value: str) -> None:
                record = {"records": [{"value": value}]}
                ask_as_admin(nodes.url(1), "POST", "/api/v1/topics/news/records", record)

            ask_as_admin(nodes.url(1), "POST", "/api/v1/topics", {"name": "news"})
            page.log_in(ADMIN, PASSWORD)
            page.open("#/topics/news/records?tail=1")
            page.wait(f"{_COUNTERS}.includes('0 records matched')", "the tail does not begin")
            write("before")
            page.wait(f"{_COUNTERS}.includes('1 record matched')", "a record is not counted")
            nodes.nodes[1].kill()
            page.see("The tail continues by itself", ".warning")
            nodes.start(1, cluster=[])
            write("after the start")
            _log_in_again(page)
            page.wait(f"{_SHOWN}.includes('after the start')", "the tail does not continue")
            page.wait("!document.querySelector('.warning')", "the interruption stays on the page")


def configuration_that_another_user_changes(_: Page, world: World) -> None:
    """Each sees what the other has applied, and a dialog shows the newest value as `now`."""
    address = "#/topics/invoices/configuration"
    with _browser(world.url) as one, _browser(world.url) as other:
        for page in (one, other):
            page.log_in(ADMIN, PASSWORD)
            page.open(address)
            page.type_filter("Age past")
            page.click("Change", within="tr:has(code)")
        one.type("New value", "3600000")
        one.click("Show what changes")
        other.type("New value", "7200000")
        other.click("Show what changes")
        other.see("7200000 (topic)", "dialog")
        other.click("Apply", within="dialog")
        other.see("is changed.")
        # The difference of the first is no longer true, and so it is not applied.
        one.click("Apply", within="dialog")
        one.see("changed meanwhile", "dialog .problem")
        one.click("Show what changes")
        one.see("7200000 (topic)", "dialog del")
        one.click("Apply", within="dialog")
        one.see("is changed.")
        other.see("3600000", "main")
    config = world.ask("GET", "/api/v1/topics/invoices/config")["items"]
    assert {"3600000"} == {each["value"] for each in config if each["name"] == "retention.ms"}


SCENARIOS: Final[tuple[Callable[[Page, World], None], ...]] = (
    dialog_outlives_its_session,
    refused_request_is_repeated_after_the_login,
    another_user_begins_anew,
    tail_continues_when_its_console_returns,
    tail_continues_when_its_node_was_killed,
    configuration_that_another_user_changes,
)
