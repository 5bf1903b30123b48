"""Goal: every operation of the administration client has a result on a node, and the page has it.

Method: all of them are run against a broker in this process (`protocols.rocketmq_admin`).
"""

from __future__ import annotations

from dragoman.client.rocketmq import RocketmqAdmin
from protocols.rocketmq_admin import OPERATIONS, PAGE, page, results, rows


def test_no_operation_is_left_out() -> None:
    public = {name for name in dir(RocketmqAdmin) if not name.startswith("_")}
    operations = {name for name in public if callable(getattr(RocketmqAdmin, name))}
    assert operations == set(OPERATIONS)


def test_every_row_of_the_table_is_an_operation() -> None:
    assert len(rows()) > 80
    assert rows().keys() <= OPERATIONS.keys()


async def test_every_operation_has_the_result_that_the_page_shows() -> None:
    found = await results()
    assert all(found.values())
    assert page(found) == PAGE.read_text()
