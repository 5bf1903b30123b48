"""The console's overview, topics, groups, cluster and connections, used as people use them, with
five protocols writing and reading meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from browser.console_page import Page
from browser.console_traffic import PROTOCOLS
from browser.console_world import ADMIN, PASSWORD, SCRIPT, VIEWER, World


def overview(page: Page, world: World) -> None:
    page.open("#/")
    for protocol in PROTOCOLS:
        page.see(protocol)
    # Samples of the history are taken every 15 seconds.
    page.wait("document.querySelector('.chart path.line')", "no chart has a line")
    page.see("What wants attention")
    page.see(SCRIPT)
    page.click("Command line and API")
    page.see("dragoman top --server")


def topic_is_created_after_a_dry_run(page: Page, world: World) -> None:
    page.open("#/topics")
    page.click("Create topic")
    page.type("Name", "orders")
    page.click("Show what changes")
    page.see("exists already", "dialog")
    page.type("Name", "made")
    page.type("Partitions", "3")
    page.type("Kept for", "2h")
    page.click("Show what changes")
    page.see("The node accepts this topic", "dialog")
    page.see("--config retention.ms=7200000", "dialog")
    assert "made" not in _names(world)
    page.click("Create", within="dialog")
    page.see("made is created.")
    page.wait("location.hash === '#/topics/made'")
    config = world.ask("GET", "/api/v1/topics/made/config")["items"]
    assert {"7200000"} == {each["value"] for each in config if each["name"] == "retention.ms"}


def configuration_is_changed_and_reset(page: Page, world: World) -> None:
    page.open("#/topics/made/configuration")
    row = "tr:has(code)"
    page.type_filter("Age past")
    page.see("Age past which segments are dropped")
    page.click("Change", within=row)
    page.type("New value", "soon")
    page.click("Show what changes")
    page.see("expected", "dialog .problem")
    page.type("New value", "60000")
    page.click("Show what changes")
    page.see("7200000 (topic)", "dialog")
    page.click("Apply", within="dialog")
    page.see("retention.ms of made is changed.")
    page.see("60000", "main")
    page.wait("!document.querySelector('dialog')")
    page.type_filter("Age past")
    page.click("Reset", within=row)
    page.see("60000 (topic)", "dialog")
    page.click("Reset", within="dialog")
    page.see("default", "main")


def topic_is_created_like_another(page: Page, world: World) -> None:
    config = {"cleanup.policy": "compact", "retention.ms": "60000", "segment.ms": "70000"}
    model = {"name": "model", "partitions": 2, "config": config}
    world.ask("POST", "/api/v1/topics", model)
    page.open("#/topics/model")
    page.click("Create similar")
    page.type("Name", "alike")
    page.click("Show what changes")
    page.see("--config retention.ms=60000", "dialog")
    page.click("Create", within="dialog")
    page.see("alike is created.")
    page.wait("location.hash === '#/topics/alike'")
    made = world.ask("GET", "/api/v1/topics/alike")
    assert len(made["partitions"]) == 2
    own = {each["name"]: each["value"] for each in made["config"] if each["source"] == "topic"}
    assert own == config
    for name in ("alike", "model"):
        world.ask("DELETE", f"/api/v1/topics/{name}")


def topic_grows_shrinks_and_goes(page: Page, world: World) -> None:
    page.open("#/topics/made/partitions")
    page.click("Add partitions")
    page.type("Partitions in all", "5")
    page.click("Show what changes")
    page.see("Afterwards", "dialog")
    page.click("Add", within="dialog")
    page.see("made has 5 partitions.")
    records = [{"value": str(number), "partition": 0} for number in range(10)]
    world.ask("POST", "/api/v1/topics/made/records", {"records": records})
    page.click("Truncate")
    page.type("Delete before", "-4")
    page.click("Show what changes")
    page.see("6 offsets of records would be deleted", "dialog")
    page.wait("document.querySelector('dialog button.danger').disabled", "deletes without a word")
    page.type("Type made", "made")
    page.click("Delete records", within="dialog")
    page.see("made is truncated.")
    page.wait("!document.querySelector('dialog')")
    page.click("Delete", within=".toolbar")
    page.see("This cannot be undone", "dialog")
    page.type("Type made", "made")
    page.click("Delete", within="dialog")
    page.see("made is deleted.")
    assert "made" not in _names(world)


def active_group_keeps_its_offsets(page: Page, world: World) -> None:
    page.open("#/groups")
    page.see("billing")
    page.open("#/groups/billing")
    page.see("Stop them first.")
    page.see("billing-1")
    off = "document.querySelector('.toolbar button.primary').disabled"
    page.wait(off, "the offsets of an active group can be reset")


def group_is_reset_after_a_dry_run(page: Page, world: World) -> None:
    page.open("#/groups/reports")
    page.click("Reset offsets")
    page.click("Latest", within="dialog")
    page.click("Show what changes")
    page.see("skipped", "dialog")
    assert sum(_offsets(world, "reports")) == 0
    page.click("Reset", within="dialog")
    page.see("2 offsets of reports are set.")
    assert sum(_offsets(world, "reports")) == 20
    page.wait("!document.querySelector('dialog')")
    for place, label, text, moved in (
        ("Shift by N", "Shift by N", "-3", "3 again"),
        ("Last N records", "Last N records", "1", "1 again"),
        ("Each partition", "topic partition offset", "invoices 1 5", "again"),
        ("A time", "A time", "@-1d", "again"),
    ):
        page.click("Reset offsets")
        page.click(place, within="dialog")
        page.type(label, text)
        page.click("Show what changes")
        page.see(moved, "dialog")
        page.press("Escape")
        page.wait("!document.querySelector('dialog')", "Escape does not close the dialog")
    page.click("Delete offsets")
    page.see("invoices", "dialog")
    page.click("Delete", within="dialog")
    page.see("are deleted.")


def setting_is_changed(page: Page, world: World) -> None:
    page.open("#/cluster")
    page.see("node 1")
    page.click("Change a setting")
    page.type("Setting", "log.retention.ms")
    page.type("Value", "86400000")
    page.click("Show what changes")
    page.see("as started", "dialog")
    page.click("Change", within="dialog")
    page.see("in force on all nodes")
    page.see("log.retention.ms", "main")
    page.click("Return to the start's value")
    page.click("Return", within="dialog")
    page.see("Nodes run with the settings that they were started with.")


def connection_is_closed(page: Page, world: World) -> None:
    page.open("#/connections")
    for protocol in PROTOCOLS:
        page.see(protocol)
    page.type_filter("mlog")
    page.click("Close")
    page.see("Most clients connect again at once", "dialog")
    page.click("Close", within="dialog")
    page.see("is closed.")


def what_is_shown_is_kept_as_files(page: Page, world: World) -> None:
    page.open("#/topics")
    page.see("invoices")
    # A browser without a window has no folder for files: their text is taken here.
    page.browser.evaluate(
        "window.kept = []; HTMLAnchorElement.prototype.click = () => {}; URL.createObjectURL = "
        "(blob) => { blob.text().then((text) => window.kept.push(text)); return ''; }"
    )
    page.type_filter("invoices")
    page.click("CSV")
    head, line, end = _kept(page, 0).split("\r\n")
    assert head.startswith("Topic,Partitions,Replicas,Records,Size"), head
    assert line.startswith("invoices,"), line
    assert not end
    page.go("#/groups/billing")
    page.wait("document.querySelector('.chart .file:not([hidden])')", "no chart has figures")
    page.browser.evaluate("document.querySelector('.chart .file:not([hidden])').click()")
    head, *lines = _kept(page, 1).split("\r\n")
    assert head == "time,records", head
    assert any(re.fullmatch(r"20\d\d-[\d-]+T[\d:.]+Z,[\d.]+", each) for each in lines), lines
    # Nothing becomes a formula in a spreadsheet; numbers stay what they are.
    page.browser.evaluate(
        "import('./static/files.js').then((files) => files.csvButton('rows', () => "
        "[['=1+1', '-a', '+1', '@x', '\\tx', -5, null, 'a \"b\", c']]).click()).then(() => true)"
    )
    made = _kept(page, 2)
    assert made == '\'=1+1,\'-a,\'+1,\'@x,\'\tx,-5,,"a ""b"", c"\r\n', made


def _kept(page: Page, index: int) -> str:
    page.wait(f"window.kept.length > {index}")
    return str(page.browser.evaluate(f"window.kept[{index}]"))


def focus_stays_when_figures_change(page: Page, world: World) -> None:
    page.open("#/topics")
    link = (
        "[...document.querySelectorAll('main td a')].find((each) => each.textContent === 'orders')"
    )
    page.wait(link)
    page.browser.evaluate(f"{link}.focus()")
    before = page.text("main")
    page.wait(f"document.querySelector('main').innerText !== {json.dumps(before)}", "no refresh")
    page.wait(f"document.activeElement === {link}", "the focus is lost by a refresh")


def missing_right_is_named(page: Page, world: World) -> None:
    page.click("alice · Log out")
    page.log_in(VIEWER, PASSWORD)
    page.open("#/topics")
    page.click("Create topic")
    page.type("Name", "forbidden")
    page.click("Show what changes")
    page.see("A right is missing", "dialog")
    page.see("create topic 'forbidden'", "dialog")
    page.press("Escape")
    page.open("#/cluster")
    page.see("A right is missing")
    page.open("#/security/quotas")
    page.see("A right is missing")
    page.open("#/")
    page.see("A right is missing")
    page.click("bob · Log out")
    page.log_in(ADMIN, PASSWORD)


SCENARIOS: Final[tuple[Callable[[Page, World], None], ...]] = (
    overview,
    topic_is_created_after_a_dry_run,
    configuration_is_changed_and_reset,
    topic_is_created_like_another,
    topic_grows_shrinks_and_goes,
    active_group_keeps_its_offsets,
    group_is_reset_after_a_dry_run,
    setting_is_changed,
    connection_is_closed,
    what_is_shown_is_kept_as_files,
    focus_stays_when_figures_change,
    missing_right_is_named,
)


def _names(world: World) -> set[str]:
    return {str(each["name"]) for each in world.ask("GET", "/api/v1/topics")["items"]}


def _offsets(world: World, group: str) -> list[int]:
    found = world.ask("GET", f"/api/v1/groups/{group}")["offsets"]
    return [int(each["committed_offset"]) for each in found]
