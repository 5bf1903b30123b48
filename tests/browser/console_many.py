"""Lists of 5,000 topics and 500 groups: asked for once, and shown within a second."""

from __future__ import annotations

import http.client
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from browser.chromium import Chromium
from browser.console_page import Page
from browser.console_process import start_console
from dragoman.testing import EphemeralBroker

_TOPICS: Final = 5000
_GROUPS: Final = 500
_TOPICS_OF_GROUP: Final = 10
#: From the click to the rows, on loopback.
_MS_MAX: Final = 1000
#: When the click was, when the first rows were there, and how many requests went out for them.
_MEASURE: Final = """(async () => {
  performance.clearResourceTimings();
  const began = performance.now();
  location.hash = ADDRESS;
  while (!document.querySelector('main td a[href*=NAME]')) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  const took = performance.now() - began;
  const entries = performance.getEntriesByType('resource');
  const asked = entries.filter((each) => each.name.includes('/lists/'));
  return [took, asked.length, document.querySelector('main .bar [role=status]').textContent];
})()"""


def run(pictures: Path) -> list[str]:
    """Faults; says how long the lists took."""
    faults = []
    with ExitStack() as stack:
        broker = stack.enter_context(EphemeralBroker(listeners=("kafka", "http")))
        _fill(broker.address("http"))
        url = start_console(stack, broker)
        browser = stack.enter_context(Chromium({}))
        page = Page(browser, url)
        page.resize(1280)
        for address, name in (("#/topics", "orders-"), ("#/groups", "reader-")):
            for attempt in ("first", "second"):
                page.open("#/connections")
                script = _MEASURE.replace("ADDRESS", json.dumps(address)).replace(
                    "NAME", json.dumps(name)
                )
                took, requests, count = browser.evaluate(script)  # type: ignore[misc]
                said = f"{address} of {count}, {attempt} time: {took:.0f} ms, {requests} request"
                print(said, flush=True)
                if took > _MS_MAX or requests != 1:
                    faults.append(said)
            page.picture(pictures / f"console-many-{name}1280-light.png")
    return faults


def _fill(address: str) -> None:
    node = http.client.HTTPConnection(address, timeout=60)

    def ask(path: str, body: object) -> None:
        node.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = node.getresponse()
        said = answer.read()
        assert answer.status < 300, said

    names = [f"orders-{number:04}" for number in range(_TOPICS)]
    for name in names:
        ask("/api/v1/topics", {"name": name, "partitions": 1})
    for name in names[:_GROUPS]:
        ask(f"/api/v1/topics/{name}/records", {"records": [{"value": "1"}, {"value": "2"}]})
    for number in range(_GROUPS):
        some = [names[(number + step) % _GROUPS] for step in range(_TOPICS_OF_GROUP)]
        ask(f"/api/v1/groups/reader-{number:03}/reset", {"to": "earliest", "topics": some})
