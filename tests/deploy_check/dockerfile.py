"""The Dockerfile by `hadolint`, the settings of the image, and its health check beside a node."""

from __future__ import annotations

import shutil
import sys

from deploy_check import serving, tools
from deploy_check.command import BUILD, ENVIRONMENT, ROOT, CheckError, output_of
from deploy_check.settings import settings_of

_FOLDER = ROOT / "deploy" / "docker"


def check() -> None:
    hadolint = tools.hadolint()
    output_of((hadolint, "--failure-threshold", "style", _FOLDER / "Dockerfile"))
    print("  hadolint finds nothing")
    settings_of({}, _FOLDER / "dragoman.toml", may_be_exposed=True)
    data = BUILD / "health"
    shutil.rmtree(data, ignore_errors=True)
    environment = {**ENVIRONMENT, "DRAGOMAN_DATA": str(data)}
    health = (sys.executable, _FOLDER / "health.py")
    dragoman = (sys.executable, "-m", "dragoman.cli.main", "serve")
    with serving.node((*dragoman, "--listen", "kafka=127.0.0.1:0"), environment):
        for path, answer in (("/livez", "ok\n"), ("/readyz", "ready\n")):
            said = output_of((*health, path), environment=environment)
            if said != answer:
                raise CheckError(f"health.py {path} says {said!r}")
    try:
        output_of(health, environment=environment)
    except CheckError:
        print("  health.py tells a node that answers from none")
        return
    raise CheckError("health.py finds a stopped node healthy")
