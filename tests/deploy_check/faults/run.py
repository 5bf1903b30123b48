"""All faults, or those of the alerts that are named, and their table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

from deploy_check import tools
from deploy_check.command import BUILD, ROOT, CheckError, NotRun
from deploy_check.faults import captures, clients, disks, nodes, pipelines
from deploy_check.faults.machine import machine
from deploy_check.faults.prometheus import Prometheus, prometheus
from deploy_check.faults.rules import rules
from deploy_check.faults.trial import Fault, Row, Stage, table

_PAGE = ROOT / "docs" / "reference" / "alerts.md"
_ROWS = BUILD / "faults.json"
_BEGIN, _END = "<!-- faults: written by make deploy-check ARGS=faults -->", "<!-- end faults -->"
_Stage: TypeAlias = Callable[[Path, Prometheus], AbstractContextManager[tuple[Fault, ...]]]
_STAGES: dict[str, _Stage] = {
    "nodes": nodes.stage,
    "clients": clients.stage,
    "disks": disks.stage,
    "captures": captures.stage,
    "pipelines": pipelines.stage,
}


def check(names: Sequence[str] = ()) -> None:
    """`names` are stages, or alerts as STAGE.ALERT; all without any."""
    home = BUILD / "faults"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    rows: list[Row] = []
    failed: list[str] = []
    held = {rule["alert"]: rule["for"] for rule in rules()}
    with prometheus(home) as scraper, machine(home, promtool=tools.promtool()) as commands:
        place = Stage(home, scraper, commands)
        for name, stage in _STAGES.items():
            if names and not any(each.partition(".")[0] == name for each in names):
                continue
            (home / name).mkdir()
            try:
                with stage(home / name, scraper) as faults:
                    for fault in faults:
                        if not names or {name, f"{name}.{fault.alert}"} & set(names):
                            try:
                                rows.append(place.run(fault))
                            except (CheckError, AssertionError) as error:
                                print(f"  {fault.alert}: FAILED: {error}", flush=True)
                                failed.append(fault.alert)
            except NotRun as reason:
                print(f"  {name}: not run: {reason}", flush=True)
    print(table(rows, held))
    if failed:
        raise CheckError(f"failed: {', '.join(failed)}")
    known = _remembered(rows)
    if untried := held.keys() - known.keys():
        text = f"without a fault: {', '.join(sorted(untried))}"
        if not names:
            raise CheckError(text)
        print(f"  {text}")
        return
    _write(table([known[alert] for alert in held], held))


def _remembered(rows: Sequence[Row]) -> dict[str, Row]:
    """The newest row of each alert, over all runs, which may be of parts."""
    before = json.loads(_ROWS.read_text()) if _ROWS.exists() else []
    known = {row.alert: row for row in (*(Row(*each) for each in before), *rows)}
    _ROWS.write_text(json.dumps(list(known.values())))
    return known


def _write(found: str) -> None:
    page = _PAGE.read_text()
    before, rest = page.split(_BEGIN)
    _PAGE.write_text(f"{before}{_BEGIN}\n{found}\n{_END}{rest.split(_END)[1]}")
