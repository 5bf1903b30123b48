"""The Helm chart: linted, rendered with values of each kind, and its objects compared with the
schemas of the oldest and the newest Kubernetes; its settings are given to a node's parser.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from deploy_check import tools
from deploy_check.command import BUILD, ROOT, CheckError, output_of
from deploy_check.settings import settings_of
from dragoman.config.settings import Settings

CHART = ROOT / "deploy" / "helm" / "dragoman"
_RELEASES = ("1.28.0", "1.37.0")
_KINDS = ("service-v1", "statefulset-apps-v1", "poddisruptionbudget-policy-v1")

LOCKED: dict[str, Any] = {
    "secrets": {"tls": "tls", "peer": "peer", "clusterKey": "key", "users": "users"}
}
VALUES: dict[str, dict[str, Any]] = {
    "three nodes": LOCKED,
    "three open nodes": {"insecure": True},
    "no console": {**LOCKED, "console": {"enabled": False}},
    "one node with all options": {
        **LOCKED,
        "replicas": 1,
        "listeners": {"kafka": 9092, "kafka-inside": 9093, "http": 8080, "rocketmq": 9876},
        "console": {"port": 8443, "service": {"type": "NodePort", "annotations": {"a": "b"}}},
        "settings": {"num.partitions": 3, "log.segment.bytes": 1 << 30, "log.level": "debug"},
        "antiAffinity": "preferred",
        "topologyKey": "",
        "persistence": {"size": "1Ti", "storageClass": "fast", "whenDeleted": "Delete"},
        "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
        "serviceMonitor": {"enabled": True, "labels": {"team": "a"}, "tokenSecret": "token"},
        "image": {"repository": "dragoman", "pullSecrets": [{"name": "registry"}]},
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "nodeSelector": {"disk": "local"},
        "tolerations": [{"key": "broker", "operator": "Exists"}],
        "priorityClassName": "high",
        "serviceAccountName": "dragoman",
        "extraEnv": [{"name": "SHOP_PASSWORD", "value": "a"}],
    },
}
#: Values that the chart refuses, and a part of the reason.
_REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "secrets.tls names the Secret"),
    ({"secrets": {"tls": "tls"}}, "secrets.peer names the Secret"),
    ({**LOCKED, "insecure": True}, "have no effect"),
    ({**LOCKED, "replicas": 2}, "/replicas"),
    ({**LOCKED, "listeners": {"http": 8080, "kafak": 9092}}, "kafak"),
    ({**LOCKED, "replica": 3}, "replica"),
    ({**LOCKED, "listeners": {"http": 8080, "console": 8081}}, "console"),
    ({**LOCKED, "console": {"port": 80}}, "port"),
)


def render(values: dict[str, Any], release: str = "dragoman", kubernetes: str = "1.37.0") -> str:
    version = ("--kube-version", kubernetes)
    return output_of(
        (tools.helm(), "template", release, CHART, *version, "--values", "-"),
        standard_input=json.dumps(values),
    )


def environment_of(rendered: str, ordinal: int = 0) -> dict[str, str]:
    """Variables of the container in a pod, as Kubernetes would set them."""
    (found,) = (each for each in yaml.safe_load_all(rendered) if each["kind"] == "StatefulSet")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    fields = {
        "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
        "metadata.name": f"{found['metadata']['name']}-{ordinal}",
    }
    variables: dict[str, str] = {}
    for each in container["env"]:
        if "value" not in each:
            variables[each["name"]] = fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            continue
        # A variable may name those before it.
        value = each["value"]
        for name, earlier in variables.items():
            value = value.replace(f"$({name})", earlier)
        variables[each["name"]] = value
    return variables


def _schemas(kubernetes: str) -> Path:
    """The schemas of a release, with references that lead to files."""
    source = tools.kubernetes_schemas() / f"v{kubernetes}-local-strict"
    target = BUILD / "schemas" / kubernetes
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in (*_KINDS, "_definitions"):
        text = (source / f"{name}.json").read_text()
        schema = json.loads(text.replace('"/api/_definitions.json#', '"_definitions.json#'))
        schema.pop("$id", None)
        (target / f"{name}.json").write_text(json.dumps(schema))
    definition = yaml.safe_load(tools.service_monitor_definition().read_text())
    (version,) = definition["spec"]["versions"]
    schema = _strict(version["schema"]["openAPIV3Schema"])
    (target / "servicemonitor-monitoring-v1.json").write_text(json.dumps(schema))
    return target


def _strict(schema: Any) -> Any:
    """A schema that refuses unknown properties, as Kubernetes' strict validation does."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        is_metadata = schema["properties"] == {}
        found["additionalProperties"] = is_metadata
    return found


def check() -> None:
    helm, kubeconform = tools.helm(), tools.kubeconform()
    for name, values in VALUES.items():
        output_of(
            (helm, "lint", "--strict", "--kube-version", "1.37.0", CHART, "--values", "-"),
            standard_input=json.dumps(values),
        )
        for release in _RELEASES:
            rendered = render(values, kubernetes=release)
            where = f"{_schemas(release)}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"
            said = output_of(
                (kubeconform, "-strict", "-summary", "-schema-location", where, "-"),
                standard_input=rendered,
            )
            print(f"  {name}, Kubernetes {release}: {said.strip()}", flush=True)
        # The name of a Service in the environment is not taken for a setting.
        settings = settings_of({**environment_of(rendered), "DRAGOMAN_SERVICE_HOST": "10.0.0.1"})
        _check_console(rendered, settings)
    for values, reason in _REFUSED:
        _refuses(values, reason)
    print(f"  {len(_REFUSED)} wrong values are refused")


def _check_console(rendered: str, settings: Settings) -> None:
    """The listener of a node's console is open if, and only if, a Service leads to it, which keeps
    browsers at one pod.
    """
    services = [each for each in yaml.safe_load_all(rendered) if each["kind"] == "Service"]
    found = [each for each in services if each["metadata"]["name"].endswith("-console")]
    bound = [each.bind.port for each in settings.listeners if each.base == "console"]
    ports = [port["port"] for each in found for port in each["spec"]["ports"]]
    if ports != bound or any(each["spec"]["sessionAffinity"] != "ClientIP" for each in found):
        raise CheckError(f"Services for the console: {found}; the node listens on {bound}")
    if found and found[0]["metadata"]["name"] not in settings.http_allowed_hosts:
        raise CheckError(f"the console does not serve its own name: {settings.http_allowed_hosts}")


def _refuses(values: dict[str, Any], reason: str) -> None:
    try:
        render(values)
    except CheckError as error:
        if reason in str(error):
            return
        raise
    raise CheckError(f"the chart takes {values}")
