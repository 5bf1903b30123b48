"""The changes of the cluster's screen, on three real nodes that demand logins and serve clients of
five protocols, a capture and a pipeline: each by a user who may, and first by one who may not.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from browser.chromium import Chromium
from browser.console_page import Page
from browser.console_pipeline import ReportedPipeline
from browser.console_traffic import OPEN_LISTENERS, TOPICS, Traffic
from browser.console_world import ADMIN, PASSWORD, VIEWER, allow, ask_as_admin
from browser.locked_nodes import create_users, options
from browser.scenarios import tried
from demo.postgres import LocalPostgres
from nodes.cluster import ServedCluster

_PATIENCE_S = 60.0
_MOVED: Final = "moved"


class LockedCluster:
    """`url` is the console of node 1."""

    def __init__(self) -> None:
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with self._open as stack:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="browser-")))
            self.nodes = stack.enter_context(
                ServedCluster(root, 3, *options(root), listeners=("console", *OPEN_LISTENERS))
            )
            self.nodes.start(1, 2, 3)
            self.url = f"http://{self.nodes.address(1, 'console')}/"
            create_users(self.nodes)
            allow(self.ask, "ANONYMOUS", "all", "topic", "group")
            allow(self.ask, VIEWER, "describe", "topic", "group", "cluster")
            allow(self.ask, VIEWER, "describe_configs", "cluster")
            for name, partitions in TOPICS.items():
                topic = {"name": name, "partitions": partitions, "replication_factor": 3}
                self.ask("POST", "/api/v1/topics", topic)
            self.ask("POST", "/api/v1/topics", {"name": _MOVED, "replication_factor": 1})
            stack.enter_context(ReportedPipeline(self.ask))
            stack.enter_context(Traffic(self._address, ADMIN, PASSWORD))
            self._capture(stack.enter_context(LocalPostgres()))
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return ask_as_admin(self.nodes.url(1), method, path, body)

    def _address(self, listener: str) -> str:
        is_kafka = listener == "kafka"
        return self.nodes.bootstrap() if is_kafka else self.nodes.address(1, listener)

    def _capture(self, postgres: LocalPostgres) -> None:
        definition = {"name": "shop", "dsn": postgres.dsn(), "tables": ["*"]}
        self.ask("POST", "/api/v1/captures", definition)
        path = "/api/v1/captures/shop"
        self.wait(lambda: self.ask("GET", path)["status"]["state"] == "streaming", "the capture")

    # ---- what it is like

    def status(self) -> dict[str, Any]:
        return dict(self.ask("GET", "/api/v1/cluster"))

    def node(self, number: int) -> dict[str, Any]:
        """What is known about a node; empty: it is none of the cluster."""
        return next((each for each in self.status()["nodes"] if each["node_id"] == number), {})

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        return list(self.ask("GET", f"/api/v1/topics/{topic}")["partitions"])

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not holds():
            if time.monotonic() > until:
                raise TimeoutError(f"{what} does not come: {self.status()}")
            time.sleep(0.05)


# ---- scenarios


def right_is_named_and_nothing_changes(_: Page, cluster: LockedCluster) -> None:
    before = cluster.status()
    with Chromium({}) as browser:
        page = Page(browser, cluster.url)
        page.resize(1280)
        page.log_in(VIEWER, PASSWORD)
        _try_everything(page, cluster)
    after = cluster.status()
    for name in ("moving", "controller"):
        assert after[name] == before[name], f"{name} changed without the right"
    assert {each["node_id"] for each in after["nodes"]} == {1, 2, 3}
    assert cluster.ask("GET", "/api/v1/cluster/settings")["items"] == []


def _try_everything(page: Page, cluster: LockedCluster) -> None:
    """Each is refused by the node, and the dialog says which right is missing."""
    for button, fields, verb in (
        ("Move replicas", {"Topic": _MOVED, "Partition": "0", "To the nodes": "2"}, "Move"),
        ("Elect preferred leaders", {}, "Elect"),
        ("Transfer metadata", {}, "Transfer"),
        ("Add node", {"Number": "4", "Address": cluster.nodes.address(4, "peer")}, "Add"),
        ("Relieve", None, "Relieve"),
        ("Drain", None, "Drain"),
        ("Change a setting", {"Setting": "log.retention.ms", "Value": "1"}, "Change"),
    ):
        page.open("#/cluster")
        page.click(button, within="main")
        if fields is not None:
            for label, text in fields.items():
                page.type(label, text)
            page.click("Show what changes", within="dialog")
        page.click(verb, within="dialog")
        page.see("A right is missing", "dialog .problem")
        page.see("dragoman acl add", "dialog .problem")
    page.open("#/cluster")
    page.click("Remove", within="main")
    page.type("Type node 1", "node 1")
    page.click("Remove", within="dialog")
    page.see("A right is missing", "dialog .problem")


def partition_is_moved(page: Page, cluster: LockedCluster) -> None:
    (now,) = cluster.partitions(_MOVED)
    target = 1 + now["leader"] % 3
    page.open("#/cluster")
    page.click("Move replicas")
    page.type("Topic", _MOVED)
    page.type("Partition", "0")
    page.type("To the nodes", str(target))
    page.click("Show what changes", within="dialog")
    page.see("1 partition of", "dialog")
    page.click("Move", within="dialog")
    page.see("1 move begun.")
    cluster.wait(lambda: cluster.partitions(_MOVED)[0]["replicas"] == [target], "the move")


def node_is_relieved_and_preferred_leaders_return(page: Page, cluster: LockedCluster) -> None:
    page.open("#/cluster")
    page.click("Relieve", within="main")
    page.see("that node 1 leads", "dialog")
    page.click("Relieve", within="dialog")
    page.wait("!document.querySelector('dialog')", "the dialog stays")

    def leaders() -> set[int]:
        return {each["leader"] for each in cluster.partitions("orders")}

    cluster.wait(lambda: 1 not in leaders(), "another leader")
    page.click("Elect preferred leaders")
    page.type("Topic", "orders")
    page.click("Show what changes", within="dialog")
    page.see("Leader now", "dialog")
    page.click("Elect", within="dialog")
    page.wait("!document.querySelector('dialog')", "the dialog stays")
    orders = cluster.partitions
    cluster.wait(
        lambda: all(each["leader"] == each["replicas"][0] for each in orders("orders")),
        "each preferred leader",
    )


def metadata_is_led_by_another_node(page: Page, cluster: LockedCluster) -> None:
    target = 1 + cluster.status()["controller"] % 2
    page.open("#/cluster")
    page.click("Transfer metadata")
    page.type("To", str(target))
    page.click("Show what changes", within="dialog")
    page.click("Transfer", within="dialog")
    page.wait("!document.querySelector('dialog')", "the dialog stays")
    cluster.wait(lambda: cluster.status()["controller"] == target, "the transfer")
    page.see(f"node {target}", ".figure")


def node_is_added_another_drained_and_removed(page: Page, cluster: LockedCluster) -> None:
    nodes = cluster.nodes
    fourth = nodes.begin(4, cluster=[*nodes.founders, nodes.name(4)])
    page.open("#/cluster")
    page.click("Add node")
    page.type("Number", "4")
    page.type("Address", nodes.address(4, "peer"))
    page.click("Show what changes", within="dialog")
    page.see("Node 4 may join", "dialog")
    page.click("Add", within="dialog")
    page.wait("!document.querySelector('dialog')", "the dialog stays")
    fourth.ready()
    cluster.wait(lambda: cluster.node(4).get("role") == "voter", "the vote of node 4")
    page.see("4 of 4")
    _row_action(page, 3, "Drain")
    page.see("to the other 3 live nodes", "dialog")
    page.click("Drain", within="dialog")
    page.wait("!document.querySelector('dialog')", "the dialog stays")
    cluster.wait(lambda: cluster.node(3)["replicas"] == 0, "the end of the moves")
    page.wait(f"!{_row(3)}.innerText.includes('NaN')", "a number is none")
    page.open("#/cluster")
    _row_action(page, 3, "Remove")
    page.see("It holds no replicas", "dialog")
    page.wait("document.querySelector('dialog button.danger').disabled", "removes without a word")
    page.type("Type node 3", "node 3")
    page.click("Remove", within="dialog")
    page.wait("!document.querySelector('dialog')", "the dialog stays")
    cluster.wait(lambda: not cluster.node(3), "the removal")
    page.see("3 of 3")


def _row(number: int) -> str:
    return (
        "[...document.querySelectorAll('main tbody tr')].find((each) => "
        f"each.firstElementChild.innerText.trim().startsWith('node {number}'))"
    )


def _row_action(page: Page, number: int, button: str) -> None:
    found = (
        f"[...{_row(number)}.querySelectorAll('button')].find("
        f"(each) => each.textContent === '{button}')"
    )
    page.wait(f"{_row(number)} && {found}", f"node {number} has no {button}")
    page.browser.evaluate(f"{found}.click()")


SCENARIOS: Final[tuple[Callable[[Page, LockedCluster], None], ...]] = (
    right_is_named_and_nothing_changes,
    partition_is_moved,
    node_is_relieved_and_preferred_leaders_return,
    metadata_is_led_by_another_node,
    node_is_added_another_drained_and_removed,
)


def run(pictures: Path) -> list[str]:
    """Faults; a picture of the cluster's screen is written into the folder."""
    with LockedCluster() as cluster, Chromium({}) as browser:
        page = Page(browser, cluster.url)
        page.resize(1280)
        page.log_in(ADMIN, PASSWORD)
        faults = tried(SCENARIOS, page, cluster)
        page.open("#/cluster")
        page.picture(pictures / "console-locked-cluster-1280-light.png")
    return faults
