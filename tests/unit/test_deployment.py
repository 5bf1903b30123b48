"""Goal: alerts, runbooks and the dashboard name metrics that exist, and each other.

Method: the files of `deploy/` are read and compared with the catalogue. What needs programs of
others is in `make deploy-check`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy_check.faults.runbook import steps
from dragoman.cli import tree
from dragoman.telemetry.catalogue import METRICS, PREFIX

ROOT = Path(__file__).parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"
PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "dragoman.json"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in RULES]
SECTIONS = ["What it means", "How to look", "What to do", "When to escalate", "When it is over"]
#: Runbooks of planned work.
PLANNED = {"backup-and-restore", "upgrade-and-rollback"}


def _panels() -> list[dict[str, Any]]:
    return list(json.loads(DASHBOARD.read_text())["panels"])


def _expressions() -> list[str]:
    shown = [each["expr"] for panel in _panels() for each in panel.get("targets", [])]
    return [rule["expr"] for rule in RULES] + shown


def _exported(name: str) -> bool:
    name = name.removeprefix(PREFIX)
    metric = METRICS.get(name)
    if metric is not None:
        return metric.kind != "histogram"
    family = METRICS.get(re.sub(r"_(bucket|sum|count)$", "", name))
    return family is not None and family.kind == "histogram"


# ---- names


@pytest.mark.parametrize("expression", _expressions())
def test_metrics_of_an_expression_are_in_the_catalogue(expression: str) -> None:
    names = re.findall(rf"\b{PREFIX}\w+", expression)
    assert names or expression == 'up{job="dragoman"} == 0'
    for name in names:
        assert _exported(name), name


@pytest.mark.parametrize("expression", _expressions())
def test_labels_of_an_expression_are_those_of_its_metrics(expression: str) -> None:
    names = re.findall(rf"\b{PREFIX}(\w+)", expression)
    known = {"instance", "job", "le"}
    for name in names:
        metric = METRICS.get(name) or METRICS[re.sub(r"_(bucket|sum|count)$", "", name)]
        known |= set(metric.labels)
    for group in re.findall(r"\bby \(([^)]*)\)", expression):
        assert {label.strip() for label in group.split(",")} <= known
    for selector in re.findall(r"\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)\s*=", selector)) <= known


def test_metrics_of_documents_are_in_the_catalogue() -> None:
    for page in RUNBOOKS.glob("*.md"):
        for name in re.findall(rf"\b{PREFIX}\w+", page.read_text()):
            assert _exported(name), (page.name, name)


# ---- alerts


def test_names_of_alerts_differ() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_alert_says_how_severe_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"\d+[mhd]", rule["for"])
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["runbook"] == f"docs/runbooks/{rule['alert']}.md"


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_runbook_says_what_it_means_and_when_it_is_over(rule: dict[str, Any]) -> None:
    page = (RUNBOOKS / f"{rule['alert']}.md").read_text()
    assert page.startswith(f"# {rule['alert']}\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == SECTIONS
    row = f"| [{rule['alert']}]({rule['alert']}.md) | {rule['labels']['severity']} |"
    assert row in (RUNBOOKS / "README.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_runbook_has_commands_that_look_and_that_know_when_it_is_over(name: str) -> None:
    found = steps(RUNBOOKS / f"{name}.md")
    assert found["How to look"]
    assert found["When it is over"]


def test_commands_of_runbooks_exist() -> None:
    commands = {each.path for each in tree.commands()}
    nouns = {each.split()[0] for each in commands}
    with_verbs = {each.split()[0] for each in commands if " " in each}
    for page in RUNBOOKS.glob("*.md"):
        found = re.findall(r"(?<![-\w] )\bdragoman ([a-z-]+)(?: ([a-z-]+))?", _code(page))
        for noun, verb in found:
            assert noun in nouns, (page.name, noun)
            assert noun not in with_verbs or f"{noun} {verb}" in commands, (page.name, noun, verb)


def _code(page: Path) -> str:
    """The commands of Dragoman in blocks, and between back-ticks."""
    text = page.read_text()
    blocks = re.findall(r"^ *```sh\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    spans = re.findall(r"(?<!`)`(dragoman [^`]+)`(?!`)", text)
    lines = "\n".join((*blocks, *spans)).splitlines()
    return "\n".join(
        each for each in lines if not re.match(r" *(systemctl|journalctl|prlimit)", each)
    )


def test_every_runbook_has_its_alert() -> None:
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == {*NAMES, *PLANNED, "README"}


def test_every_alert_has_a_test_in_which_it_is_quiet_and_one_in_which_it_fires() -> None:
    tests = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
    found = [case for each in tests for case in each["alert_rule_test"]]
    for name in NAMES:
        fires = [bool(case["exp_alerts"]) for case in found if case["alertname"] == name]
        assert sorted(fires) == [False, True], name


# ---- the dashboard


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = _panels()
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23


def test_dashboard_names_alerts_that_exist() -> None:
    for name in re.findall(r"\bDragoman[A-Z]\w+", DASHBOARD.read_text()):
        assert name in NAMES
