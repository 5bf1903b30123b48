"""Alerts and the dashboard by `promtool`: rules are valid, fire when they should and at no other
time, and the dashboard's expressions can be parsed.
"""

from __future__ import annotations

import json
import re

from deploy_check import tools
from deploy_check.command import BUILD, ROOT, output_of

_FOLDER = ROOT / "deploy" / "prometheus"
_DASHBOARD = ROOT / "deploy" / "grafana" / "dragoman.json"


def check() -> None:
    promtool = tools.promtool()
    said = output_of((promtool, "check", "rules", _FOLDER / "alerts.yml"))
    print(f"  alerts.yml: {said.split('SUCCESS:')[-1].strip()}")
    output_of((promtool, "test", "rules", "alerts_test.yml"), directory=_FOLDER)
    print("  alerts_test.yml: all pass")
    rules = [
        # What Grafana puts in.
        {"record": f"panel:{panel['id']}", "expr": re.sub(r"\$__\w+", "5m", each["expr"])}
        for panel in json.loads(_DASHBOARD.read_text())["panels"]
        for each in panel.get("targets", [])
    ]
    file = BUILD / "dashboard.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    output_of((promtool, "check", "rules", file))
    print(f"  dragoman.json: {len(rules)} expressions can be parsed")
