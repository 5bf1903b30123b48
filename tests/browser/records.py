"""The page of a topic's records in a real browser: a part of `make browser`.

A user reads, filters, stops and goes on, opens a record, follows new ones, writes one, counts,
finds and copies. Records
hold markup everywhere; it must stay text, and no script of it may run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final

from browser.chromium import BrowserError, Chromium
from dragoman.client.kafka import (
    BlockingKafkaClient,
    ClientSettings,
    NewRecord,
    NewTopic,
    SaslLogin,
)
from dragoman.config.console import ConsoleSettings, KafkaTarget
from dragoman.console.serve import serve
from dragoman.testing import EphemeralBroker

_USER, _PASSWORD = "alice", "correct horse"
_MARKUP: Final = '<img src=x onerror="window.ran=1"><script>window.ran=1</script>'
_COUNT: Final = 20_000
_PATIENCE_S: Final = 30.0


@contextlib.contextmanager
def _console(broker: EphemeralBroker) -> Iterator[str]:
    """The URL of a console in a thread of its own."""
    kafka = KafkaTarget(bootstrap=broker.bootstrap_servers)
    settings = ConsoleSettings(server=broker.http_url, kafka=kafka)
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def run() -> None:
        loop.run_until_complete(serve(settings, listener, stop))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def _fill(broker: EphemeralBroker) -> BlockingKafkaClient:
    login = SaslLogin(name=_USER, password=_PASSWORD)
    client = BlockingKafkaClient(broker.bootstrap_servers, ClientSettings(login=login)).open()
    client.create_topic(NewTopic(name="orders", partitions=2))
    client.produce_records(
        "orders",
        [
            NewRecord(key=b"order-%d" % n, value=b'{"n": %d}' % n, partition=n % 2)
            for n in range(_COUNT)
        ],
    )
    client.create_topic(NewTopic(name="hostile", partitions=1))
    markup = _MARKUP.encode()
    values = (markup, json.dumps({_MARKUP: _MARKUP}).encode())
    records = [NewRecord(key=markup, value=each, headers=((_MARKUP, markup),)) for each in values]
    client.produce_records("hostile", records)
    return client


class Page:
    def __init__(self, browser: Chromium, url: str) -> None:
        self._browser = browser
        self._url = url
        self.faults: list[str] = []

    def show(self, address: str) -> None:
        self._browser.show("about:blank")
        self._browser.show(self._url + address)

    def run(self, script: str) -> object:
        return self._browser.evaluate(script)

    def expect(self, what: str, script: str) -> None:
        """That an expression becomes true."""
        until = time.monotonic() + _PATIENCE_S
        while not self.run(f"Boolean({script})"):
            if time.monotonic() > until:
                self.faults.append(what)
                print(f"FAULT {what}: {self.run('document.body.innerText')!r:.600}")
                return
        print(f"ok    {what}", flush=True)

    def press(self, text: str) -> None:
        self.expect(f"a button `{text}` is there", f"({_BUTTON % json.dumps(text)})")
        self.run(f"({_BUTTON % json.dumps(text)}).click()")

    def type(self, label: str, text: str) -> None:
        self.run(f"({_FIELD % json.dumps(label)}).value = {json.dumps(text)}")


_BUTTON: Final = (
    "[...document.querySelectorAll('button')].find((each) =>"
    " each.textContent === %s && !each.hidden && !each.disabled)"
)
_FIELD: Final = (
    "[...document.querySelectorAll('label')].find((each) =>"
    " each.firstChild.textContent === %s).querySelector('input, select, textarea')"
)
_DIALOG_FIELD: Final = (
    "[...document.querySelectorAll('dialog label')].find((each) =>"
    " each.firstChild.textContent === %s).querySelector('input, select')"
)
_ROWS: Final = "document.querySelectorAll('tr[data-record]').length"
_COUNTERS: Final = "(document.querySelector('.counters')?.textContent ?? '')"
_ROWS_OF: Final = "document.querySelectorAll('[aria-label=%s] tbody tr').length"
_UNLABELLED: Final = (
    "[...document.querySelectorAll('main input, main select, main textarea, main button')]"
    ".filter((each) => !each.closest('label') && !each.getAttribute('aria-label')"
    " && !each.textContent.trim()).length"
)


def _log_in(page: Page) -> None:
    page.show("#/")
    page.expect("the console asks for a login", "document.querySelector('input[name=user]')")
    page.run(
        f"fetch('session', {{method: 'POST', headers: {{'content-type': 'application/json'}},"
        f" body: {json.dumps(json.dumps({'user': _USER, 'password': _PASSWORD}))}}})"
        ".then((answer) => answer.status)"
    )


def _searches(page: Page) -> None:
    page.show("#/topics/orders/records")
    page.expect("the last records are shown at once", f"{_ROWS} === 100")
    page.expect("every field has a label", f"{_UNLABELLED} === 0")
    page.type("From", "earliest")
    page.type("Filter", "value.n == 7 or value.n == 19999")
    page.press("Search")
    page.expect("a filter finds two records", f"{_ROWS} === 2")
    page.expect("counters are those of all", f"{_COUNTERS}.includes('20,000 scanned')")
    page.expect("the address has the search", "location.hash.includes('value.n')")
    page.type("Filter", "")
    page.type("Records scanned", "150")
    page.press("Search")
    page.expect("a limit ends the search", f"{_COUNTERS}.includes('as many as were wanted')")
    page.press("Continue")
    page.expect("it goes on", f"{_ROWS} === 200")
    page.type("Filter", "value.n = 7")
    page.press("Search")
    page.expect("a mistake is named", "document.querySelector('.field-error').textContent"
                ".includes('write ==')")  # fmt: skip


def _opens(page: Page) -> None:
    page.show("#/topics/orders/records?from=-5")
    page.expect("five of each partition", f"{_ROWS} === 10")
    page.run("document.querySelector('button.row').focus()")
    page.run("document.activeElement.click()")
    page.expect("a record opens", "document.querySelector('.panel pre .json-number')")
    page.expect("its title has the focus", "document.activeElement.id === 'record-title'")
    page.expect("its address is permanent", "location.hash.includes('record=')")
    page.run("document.activeElement.dispatchEvent("
             "new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))")  # fmt: skip
    page.expect("Escape closes it", "document.querySelector('.panel').hidden")
    page.expect("its row has the focus", "document.activeElement.matches('button.row')")
    page.show("#/topics/orders/records?record=1:3")
    page.expect("a permanent link opens a record", "document.querySelector('.panel pre')")


def _is_text(page: Page) -> None:
    for address in ("hostile/records", "hostile/records?record=0:0", "hostile/records?record=0:1"):
        page.show(f"#/topics/{address}")
        page.expect(f"markup is shown at {address}", "document.body.innerText.includes('<img')")
        page.expect("it is text", "!document.querySelector('main img') && !window.ran")
    page.show(f"#/topics/{'%3Cimg%20src%3Dx%20onerror%3D%22window.ran%3D1%22%3E'}/records")
    page.expect("a missing topic is a problem", "document.querySelector('.problem')")
    page.expect("its name is text", "!document.querySelector('main img') && !window.ran")


def _follows(page: Page, client: BlockingKafkaClient) -> None:
    page.show("#/topics/orders/records?tail=1")
    page.expect("the tail waits", f"{_COUNTERS}.includes('0 records matched')")
    client.produce_records("orders", [NewRecord(value=b"live", partition=0)] * 200)
    page.expect("new records are shown", f"{_ROWS} > 0")
    page.expect("those over the rate are counted", f"/[1-9]\\d* dropped/.test({_COUNTERS})")
    page.press("Pause")
    client.produce_records("orders", [NewRecord(value=b"paused", partition=0)] * 10)
    page.expect("a pause counts", f"{_COUNTERS}.includes('passed while paused')")
    page.expect(
        "and shows nothing", "!document.querySelector('tbody').innerText.includes('paused')"
    )
    page.press("Stop")
    page.expect("the tail stops", f"({_BUTTON % json.dumps('Live tail')})")


def _writes(page: Page) -> None:
    page.show("#/topics/orders/records?from=-1")
    page.press("Produce")
    page.run("document.querySelector('dialog textarea').value = '{\"big\": 12345678901234567890}'")
    page.run("document.querySelector('dialog form').requestSubmit()")
    page.expect("a record is written and found", "document.querySelector('tbody').innerText"
                ".includes('12345678901234567890')")  # fmt: skip


def _counts(page: Page) -> None:
    page.show("#/topics/orders/records?from=earliest&filter=value.n%20%3C%20100")
    page.expect("a search before statistics", f"{_ROWS} === 100")
    page.press("Statistics")
    page.expect("statistics take the list's place", "document.querySelector('.records').hidden")
    page.expect("they are of what the filter finds", _figure("Different keys", "100"))
    page.expect("and of all partitions", f"{_ROWS_OF % 'Partitions'} === 2")
    page.expect("they have an address", "location.hash.includes('statistics=1')")
    page.show("#/topics/hostile/records?from=earliest&statistics=1")
    page.expect("a key of markup is counted", "document.body.innerText.includes('<img')")
    page.expect("it is text", "!document.querySelector('main img') && !window.ran")


def _figure(name: str, value: str) -> str:
    return (
        "[...document.querySelectorAll('.figure')].some((each) =>"
        f" each.innerText.startsWith({json.dumps(name)}) && each.innerText.includes({value!r}))"
    )


def _finds_and_keeps(page: Page, client: BlockingKafkaClient) -> None:
    unique = "AC110001003C18B4AAC2712AEEEB0000"
    sent = NewRecord(value=b"sent", headers=(("UNIQ_KEY", unique.encode()),), partition=0)
    client.produce_records("orders", [sent])
    page.show("#/topics/orders/records?from=-1")
    page.press("Find by key or id")
    page.run(f"{_DIALOG_FIELD % json.dumps('Equal to')}.value = 'order-4711'")
    page.run("document.querySelector('dialog form').requestSubmit()")
    page.expect(
        "a key finds its record", f"{_ROWS} === 1 && {_COUNTERS}.includes('1 record found')"
    )
    page.press("Find by key or id")
    page.run(f"{_DIALOG_FIELD % json.dumps('By')}.value = 'id'")
    page.run(f"{_DIALOG_FIELD % json.dumps('Equal to')}.value = 'AC11000100002A9F0000000000000001'")
    page.run("document.querySelector('dialog form').requestSubmit()")
    page.expect("an id of another kind is named", "document.querySelector('dialog .problem')"
                "?.innerText.includes('offset message id')")  # fmt: skip
    page.run(f"{_DIALOG_FIELD % json.dumps('Equal to')}.value = {json.dumps(unique.lower())}")
    page.run("document.querySelector('dialog form').requestSubmit()")
    page.expect("an id finds its message", f"{_ROWS} === 1 && {_COUNTERS}.includes('all was')")
    page.press("Find by key or id")
    page.run(f"{_DIALOG_FIELD % json.dumps('Equal to')}.value = 'order-4711'")
    page.run("document.querySelector('dialog form').requestSubmit()")
    page.expect("the key again", "location.hash.includes('4711')")
    page.run("document.querySelector('[aria-label=\"Name of this search\"]').value = 'one order'")
    page.press("Save")
    page.show("#/topics/orders/records")
    page.expect("a search is kept", "document.querySelector('.saved a')?.hash.includes('4711')")
    page.run("document.querySelector('[aria-label=\"Delete one order\"]').click()")
    page.expect("and deleted", "!document.querySelector('.saved a')")


def _copies(page: Page, client: BlockingKafkaClient) -> None:
    client.create_topic(NewTopic(name="copies", partitions=2))
    page.show("#/topics/orders/records?from=earliest&filter=value.n%20%3C%20300")
    page.press("Copy to a topic")
    page.run(f"{_DIALOG_FIELD % json.dumps('To the topic')}.value = 'copies'")
    page.press("Show what changes")
    page.expect("a dry run counts", "document.querySelector('dialog').innerText"
                ".includes('300 records') && document.querySelector('dialog').innerText"
                ".includes('would be copied')")  # fmt: skip
    page.expect("the command is shown", "document.querySelector('dialog').innerText"
                ".includes('| dragoman produce copies')")  # fmt: skip
    page.expect("then it can be copied", "!document.querySelector('dialog .primary').disabled")
    page.run("document.querySelector('dialog .primary').click()")
    page.expect("the copy is complete", "document.querySelector('dialog').innerText"
                ".includes('this is all')")  # fmt: skip
    page.press("Close")
    page.show("#/topics/copies/records?from=earliest&statistics=1")
    page.expect("all of it is there", _figure("Records", "300"))


def _follows_several(page: Page, client: BlockingKafkaClient) -> None:
    page.show("#/tail?topics=orders&pattern=%5Ecopies%24")
    page.expect("topics are named and match", "document.body.innerText.includes('2 topics with')")
    client.produce_records("copies", [NewRecord(value=b"of copies", partition=0)])
    client.produce_records("orders", [NewRecord(value=b"of orders", partition=0)])
    page.expect("records of both are shown", f"{_ROWS} === 2")
    page.run("document.querySelector('button.row').click()")
    page.expect("a record opens and names its topic", "/^(copies|orders), partition/.test("
                "document.querySelector('#record-title').textContent)")  # fmt: skip
    page.press("Stop")
    page.show("#/tail?pattern=%5Enothing")
    page.expect("a pattern without topics says so", "document.querySelector('.problem')")


def _shows_producers_and_settings(page: Page, node: int) -> None:
    page.show("#/topics/orders/producers")
    page.expect("producers are listed", f"{_ROWS_OF % 'Producers'} > 0")
    page.show(f"#/cluster/settings/{node}")
    page.expect("settings are listed", f"{_ROWS_OF % 'Settings'} > 100")
    change = "document.querySelector('[aria-label=\"Change connections.max.idle.ms\"]')"
    page.run(f"{change}.click()")
    page.run(f"{_DIALOG_FIELD % json.dumps('Value')}.value = '599000'")
    page.press("Show what changes")
    page.expect("a change is shown first", "!document.querySelector('dialog .primary').disabled")
    page.run("document.querySelector('dialog .primary').click()")
    changed = "document.querySelector('[aria-label=Settings] tbody').innerText"
    page.expect("a setting is changed", f"{changed}.includes('changed at run time')")


def main() -> int:
    with (
        EphemeralBroker(
            users={_USER: _PASSWORD},
            listeners=("kafka", "http"),
            settings={"super.users": f"User:{_USER}"},
        ) as broker,
        _fill(broker) as client,
        _console(broker) as url,
        Chromium({}) as browser,
    ):
        page = Page(browser, url)
        _log_in(page)
        _searches(page)
        _opens(page)
        _is_text(page)
        _follows(page, client)
        _writes(page)
        _counts(page)
        _finds_and_keeps(page, client)
        _copies(page, client)
        _follows_several(page, client)
        (node,) = client.cluster().brokers
        _shows_producers_and_settings(page, node)
    return 1 if page.faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrowserError as error:
        sys.exit(f"browser: {error}")
