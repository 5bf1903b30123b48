"""Many scrapers at once: one text is made at a time, and none is older than its request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from dragoman.api.metrics.scrapes import Scrapes
from dragoman.telemetry.catalogue import Stats
from dragoman.telemetry.exposition import OPENMETRICS, PLAIN


class Node:
    def __init__(self) -> None:
        self.topics = 0
        self.running = self.most_running = self.made = 0

    def stats(self) -> Iterator[Stats]:
        self.running += 1
        self.made += 1
        self.most_running = max(self.most_running, self.running)
        topics = self.topics
        yield {}
        yield {"topics": topics}
        yield {}
        self.running -= 1


async def test_scrapes_that_wait_together_share_one_text() -> None:
    node = Node()
    scrapes = Scrapes(node.stats)
    first = asyncio.ensure_future(scrapes.text(PLAIN))
    await asyncio.sleep(0)
    node.topics = 1
    later = [asyncio.ensure_future(scrapes.text(PLAIN)) for _ in range(50)]
    other = asyncio.ensure_future(scrapes.text(OPENMETRICS))
    assert b"dragoman_topics 0\n" in await first
    texts = await asyncio.gather(*later)
    assert all(b"dragoman_topics 1\n" in each for each in texts)
    assert (await other).endswith(b"# EOF\n")
    assert (node.made, node.most_running) == (3, 1)
    assert not scrapes._made


async def test_each_of_successive_scrapes_has_a_text_of_its_own() -> None:
    node = Node()
    scrapes = Scrapes(node.stats)
    for node.topics in range(3):
        assert b"dragoman_topics %d\n" % node.topics in await scrapes.text(PLAIN)


async def test_scraper_that_goes_keeps_no_other_waiting() -> None:
    node = Node()
    scrapes = Scrapes(node.stats)
    first = asyncio.ensure_future(scrapes.text(PLAIN))
    second = asyncio.ensure_future(scrapes.text(PLAIN))
    await asyncio.sleep(0)
    first.cancel()
    assert b"dragoman_topics 0\n" in await second
