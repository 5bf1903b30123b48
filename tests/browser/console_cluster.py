"""The console of three nodes, one of which stops: what is wrong is said, with what to do."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from browser.axe import serious_findings
from browser.chromium import BrowserError, Chromium
from browser.console_page import Page
from browser.console_process import start_console
from dragoman.client.kafka import BlockingKafkaClient, NewRecord
from dragoman.testing import EphemeralCluster


def run(pictures: Path) -> list[str]:
    """Faults; a picture of the cluster without one of its nodes is written into the folder."""
    with ExitStack() as stack:
        cluster = stack.enter_context(EphemeralCluster(3))
        cluster.topic("orders").create(partitions=6, replicas=3)
        with BlockingKafkaClient(cluster.bootstrap_servers) as client:
            records = [NewRecord(value=b"%d" % number) for number in range(200)]
            client.produce_records("orders", records)
        url = start_console(stack, cluster.nodes[1])
        page = Page(stack.enter_context(Chromium({})), url)
        page.resize(1280)
        try:
            return _watch(page, cluster, pictures)
        except BrowserError as error:
            return [f"cluster of three: {error}"]


def _watch(page: Page, cluster: EphemeralCluster, pictures: Path) -> list[str]:
    page.open("#/cluster")
    page.see("3 of 3")
    page.see("The console only reads until you log in.")
    page.see("Every partition has its leader and its replicas in sync.")
    cluster.kill(3)
    page.see("2 of 3")
    page.see("not alive")
    page.see("Partitions that want attention")
    # Samples of the history are taken every 15 seconds.
    page.wait("document.querySelector('.chart path.line')", "no chart has a line")
    page.picture(pictures / "console-cluster-of-three-1280-light.png")
    faults = [f"cluster of three: {each}" for each in serious_findings(page.browser)]
    page.open("#/")
    page.see("Node 3 does not answer.")
    page.see("dragoman cluster remove 3")
    page.see("replicas in sync")
    page.picture(pictures / "console-attention-1280-light.png")
    print("cluster of three: seen", flush=True)
    return faults
