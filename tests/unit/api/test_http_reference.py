"""Pages of the HTTP API and of metrics repeat the code; here they are compared."""

from __future__ import annotations

import json
import shlex
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from dragoman import limits
from dragoman.api.meanings import meaning_of
from dragoman.api.operations import OPERATIONS
from dragoman.api.problems import STATUS_BY_CODE
from dragoman.telemetry.catalogue import METRICS, PREFIX

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/http.md").read_text()


METRICS_PAGE = (ROOT / "docs/reference/metrics.md").read_text()


def _program(name: str) -> ModuleType:
    """One of those that write documents."""
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(heading: str, page: str = PAGE) -> list[list[str]]:
    """Cells of the first table below a heading."""
    below = page.split(f"\n{heading}\n", 1)[1]
    table = below[below.index("\n|") + 1 :].split("\n\n", 1)[0]
    return [
        [cell.strip() for cell in line.strip("| ").split(" |")]
        for line in table.strip().splitlines()[2:]
        if line.startswith("|")
    ]


def test_tables_are_those_of_the_code() -> None:
    tables = _program("tables")
    assert tables.with_tables(PAGE, tables.HTTP_TABLES) == PAGE, "run `make docs`"
    found = [
        (name.partition("]")[0].lstrip("["), does) for name, does in rows("## JSON API, version 1")
    ]
    assert found == [(f"`{each.method} {each.path}`", each.summary) for each in OPERATIONS]


def test_tables_of_metrics_are_those_of_the_code() -> None:
    tables = _program("tables")
    page = METRICS_PAGE
    assert tables.with_tables(page, tables.METRICS_TABLES) == page, "run `make docs`"
    names = [name for name, *_ in rows("## All metrics", page)]
    assert names == [f"`{PREFIX}{each.name}`" for each in METRICS.values()]
    assert f"{limits.METRIC_SERIES_MAX} series" in page


def test_page_of_operations_is_current() -> None:
    program = _program("http_operations")
    assert program.PAGE.read_text() == program.reference_page(), "run `make docs`"


def test_operation_shows_a_request_that_can_be_sent() -> None:
    page = _program("http_operations").reference_page()
    _, _, section = page.partition("### `PATCH /api/v1/topics/{name}`\n")
    command = section.partition("```sh\n")[2].partition("\n```")[0]
    words = shlex.split(command.replace("\\\n", ""))
    assert words[:4] == ["curl", "-X", "PATCH", "http://127.0.0.1:8080/api/v1/topics/orders"]
    assert json.loads(words[-1]) == {"set": {"retention.ms": "3600000"}, "unset": ["segment.bytes"]}


def test_every_parameter_has_a_meaning() -> None:
    for operation in OPERATIONS:
        for each in operation.parameters:
            assert meaning_of(operation.path, each).endswith("."), (operation.path, each.name)


def test_codes_have_their_documented_status() -> None:
    documented = {code.strip("`"): int(status) for status, code, _ in rows("### Errors")}
    assert documented.items() >= STATUS_BY_CODE.items()


def test_bounds_are_the_real_ones() -> None:
    documented = {what: bound for what, bound, _ in rows("### Bounds")}
    assert documented == {
        "request body": f"{limits.HTTP_BODY_BYTES_MAX} bytes",
        "request line and headers, while incomplete": f"{limits.HTTP_HEADER_BYTES_MAX} bytes",
        "connections": str(limits.HTTP_CONNECTIONS_MAX),
        "streams of events": (
            f"{limits.HTTP_STREAMS_MAX}, of {limits.HTTP_STREAM_PARTITIONS_MAX} partitions each"
        ),
        "operations at a time": str(limits.HTTP_OPERATIONS_MAX),
        "time for a request's head": f"{limits.HTTP_REQUEST_SECONDS} s",
        "time for a request's body": f"{limits.HTTP_REQUEST_SECONDS} s",
        "time for a client to read a response": f"{limits.HTTP_DELIVERY_SECONDS} s",
        "responses that clients do not read, over all connections": (
            f"{limits.HTTP_UNSENT_BYTES_MAX} bytes"
        ),
        "idle time between requests": f"{limits.HTTP_KEEP_ALIVE_SECONDS} s",
    }
    assert f"after {limits.HTTP_HEARTBEAT_SECONDS} seconds" in PAGE
    assert f"1 to {limits.HTTP_PAGE_ITEMS_MAX}" in PAGE
