"""`make interop`: clients that others wrote, operation by operation, against a real broker.

    python tests/interop/run.py [--output FILE] [CLIENT ...]

Prints a table, what was not run and why, and the reason of every failure; ends with status 1 when
something failed. An empty cell means that the client itself cannot do it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from types import ModuleType

from operations import OPERATIONS, Unsupported
from rich.console import Console
from rich.table import Table

from dragoman import __version__
from dragoman.testing import EphemeralBroker

CLIENTS = {
    "confluent-kafka": "confluent_client",
    "kafka-python": "kafka_python_client",
    "aiokafka": "aiokafka_client",
    "kcat": "kcat_client",
}
#: Clients that this run does not know how to set up.
NOT_RUN = {
    "KafkaJS": "needs Node",
    "franz-go, sarama": "need Go",
    "Java client, Kafka Connect": "need Maven",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="interop")
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=", ".join(CLIENTS))
    parser.add_argument("--output", metavar="FILE", help="write the results as JSON")
    options = parser.parse_args()
    unknown = set(options.clients) - CLIENTS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    skipped = dict(NOT_RUN)
    results: dict[str, dict[str, str]] = {}
    for name in options.clients or CLIENTS:
        client = _load(name, skipped)
        if client is not None:
            results[f"{client.name} {client.version}"] = _try_all(client)
    _show(results, skipped)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump({"dragoman": __version__, "results": results, "not run": skipped}, file)
    failed = [cell for cells in results.values() for cell in cells.values() if cell not in _FINE]
    return 1 if failed or not results else 0


def _load(name: str, skipped: dict[str, str]) -> ModuleType | None:
    try:
        client = importlib.import_module(CLIENTS[name])
    except ModuleNotFoundError as error:
        skipped[name] = str(error)
        return None
    if not client.version:
        skipped[name] = "not installed"
        return None
    return client


_FINE = ("pass", "")


def _try_all(client: ModuleType) -> dict[str, str]:
    """Per operation `pass`, nothing when the client cannot, or what went wrong."""
    cells: dict[str, str] = {}
    with EphemeralBroker() as broker:
        for title, operation in OPERATIONS.items():
            topic = re.sub(r"\W+", "-", title)
            try:
                operation(client, broker.bootstrap_servers, topic)
            except Unsupported:
                cells[title] = ""
            except Exception as error:  # noqa: BLE001 - whatever a client raises is its result
                cells[title] = f"{type(error).__name__}: {error}"
            else:
                cells[title] = "pass"
    return cells


def _show(results: dict[str, dict[str, str]], skipped: dict[str, str]) -> None:
    console = Console(highlight=False)
    table = Table(title=f"Dragoman {__version__}", title_justify="left")
    table.add_column("operation")
    for client in results:
        table.add_column(client, justify="center")
    for title in OPERATIONS:
        cells = [each[title] for each in results.values()]
        table.add_row(title, *(cell if cell in _FINE else "[red]FAIL[/red]" for cell in cells))
    console.print(table)
    for client, reason in skipped.items():
        console.print(f"not run: {client} ({reason})")
    for client, cells in results.items():
        for title, cell in cells.items():
            if cell not in _FINE:
                console.print(f"failed: {client}, {title}: {cell}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
