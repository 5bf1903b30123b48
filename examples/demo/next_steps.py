"""What to try while the broker keeps serving: lines to copy, and pages of the console."""

from __future__ import annotations

from urllib.parse import urlencode

from demo.broker_process import BrokerProcess

_COMMAND = ".venv/bin/dragoman"
_WARMEST = (
    "select key, max(value.celsius) warmest from readings group by key order by 2 desc limit 3"
)
_SEARCH = {"from": "earliest", "filter": "value.amount > 200"}
_QUERY = {"topic": "sales", "q": "select key, count(*) as sold from sales group by key"}


def next_steps(broker: BrokerProcess, table_path: str) -> list[tuple[str, str]]:
    """What each line is for, and the line. Without a table there are no windows either."""
    kafka, http = broker.bootstrap_servers, broker.http_url
    sql = f"{_COMMAND} sql --bootstrap {kafka}"
    lines = [
        ("any Kafka client", f"bootstrap.servers={kafka}"),
        ("kcat", f"kcat -C -e -b {kafka} -t readings | tail -3"),
        (
            "over another protocol",
            f"{_COMMAND} consume orders --protocol mlog --bootstrap {broker.address('mlog')}",
        ),
        ("command line", f"{_COMMAND} topic describe readings --server {http}"),
        ("SQL over a topic", f"{sql} --decode json '{_WARMEST}'"),
    ]
    if table_path:
        lines += [
            ("SQL over the table", f"{sql} 'select * from parquet.`{table_path}` order by 1'"),
            ("topic of windows", f"{_COMMAND} consume windows --bootstrap {kafka}"),
        ]
    return [
        *lines,
        ("metrics, API", f"{http}/metrics  {http}/openapi.json"),
        ("data directory", broker.data),
    ]


def console_pages(broker: BrokerProcess) -> list[tuple[str, str]]:
    """What to look at, and where."""
    pages = f"{broker.console_url}/#"
    return [
        ("a lag, up and down", f"{pages}/groups/reports"),
        ("records by a filter", f"{pages}/topics/sales/records?{urlencode(_SEARCH)}"),
        ("a topic by SQL", f"{pages}/sql?{urlencode(_QUERY, safe='(*),')}"),
    ]
