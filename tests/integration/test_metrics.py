"""The metrics of a running node are those of the reference page: names, kinds and labels."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families as plain_families

from dragoman.telemetry.catalogue import ALIASES
from dragoman.testing import EphemeralBroker

PAGE = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text()
#: Labels that the format itself adds.
FORMATS_OWN = {"le"}


def documented() -> dict[str, tuple[str, set[str]]]:
    """Kind and labels of each metric in the table of the page."""
    table = PAGE.split("<!-- metrics: ", 1)[1].split("<!-- end metrics -->", 1)[0]
    found = {}
    for line in table.splitlines():
        if line.startswith("| `dragoman_"):
            name, kind, labels, _ = line.strip("| ").split(" | ", 3)
            found[name.strip("`")] = (
                kind,
                {each for each in labels.split("`") if each.isidentifier()},
            )
    return found


def scraped(broker: EphemeralBroker, accept: str = "") -> str:
    request = urllib.request.Request(
        f"http://{broker.address('http')}/metrics", headers={"Accept": accept}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()


def use(broker: EphemeralBroker) -> None:
    """A group reads what was produced, and commits it."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(10):
        producer.produce("orders", str(number))
    producer.flush()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    read = 0
    while read < 10:
        message = consumer.poll(30)
        assert message is not None
        read += message.error() is None
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.parametrize(
    ("accept", "parse"),
    [("", plain_families), ("application/openmetrics-text", openmetrics_families)],
    ids=["plain", "openmetrics"],
)
def test_metrics_of_a_node_are_the_documented_ones(accept: str, parse) -> None:
    wanted = documented()
    with EphemeralBroker(storage="directory", listeners=("http", "kafka")) as broker:
        use(broker)
        text = scraped(broker, accept)
    found = {}
    for family in parse(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        found[name] = family
    assert found.keys() == wanted.keys()
    for name, family in found.items():
        kind, labels = wanted[name]
        assert family.type == kind, name
        for sample in family.samples:
            assert sample.labels.keys() - FORMATS_OWN == labels, name


def test_metrics_follow_what_clients_do() -> None:
    with EphemeralBroker(storage="directory", listeners=("http", "kafka")) as broker:
        use(broker)
        values = {
            (sample.name, *sample.labels.values()): sample.value
            for family in plain_families(scraped(broker))
            for sample in family.samples
        }
    assert values["dragoman_requests_total", "kafka", "Produce"] >= 1
    assert values["dragoman_request_seconds_count", "kafka", "Produce"] >= 1
    assert values["dragoman_journal_sync_seconds_count",] >= 1
    assert values["dragoman_appended_batches_total",] >= 2
    assert values["dragoman_log_bytes",] > 0
    assert values["dragoman_fetched_bytes_total",] > 0
    assert values["dragoman_groups", "Empty"] == 1
    assert values["dragoman_leader_partitions",] == values["dragoman_partitions",]


def test_metrics_have_the_names_of_other_programs() -> None:
    settings = {"metrics.aliases": "kafka_exporter,minibroker"}
    with EphemeralBroker(listeners=("http", "kafka"), settings=settings) as broker:
        use(broker)
        families = list(plain_families(scraped(broker)))
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    shown = {
        each.name + ("_total" if each.type == "counter" else "")
        for each in families
        if not each.name.startswith("dragoman_")
    }
    assert shown == {name for names in ALIASES.values() for name in names}
    partitions = values["kafka_topic_partitions", "orders"]
    ends = [
        values["kafka_topic_partition_current_offset", "orders", str(index)]
        for index in range(int(partitions))
    ]
    assert sum(ends) == 10
    assert values["kafka_brokers",] == 1
    assert values["kafka_consumergroup_lag_sum", "readers", "orders"] == 0
    assert values["kafka_consumergroup_current_offset_sum", "readers", "orders"] == 10
    assert values["kafka_topic_partition_leader", "orders", "0"] == 1
    assert values["minibroker_publishes_total",] == 0


def test_metrics_are_there_as_json() -> None:
    with EphemeralBroker(listeners=("http", "kafka")) as broker:
        use(broker)
        url = f"http://{broker.address('http')}/api/v1/metrics?prefix=dragoman_group_lag"
        with urllib.request.urlopen(url, timeout=60) as response:
            page = json.load(response)
    assert page["next"] is None
    lags = {each["name"]: each["series"] for each in page["items"]}
    assert lags["dragoman_group_lag_records"] == [
        {"labels": {"group": "readers", "topic": "orders"}, "value": 0}
    ]
