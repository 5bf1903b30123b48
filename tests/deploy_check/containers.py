"""The image and the files for Compose in real containers, and the pods of the chart as containers
with the variables, files and permissions that Kubernetes would give them.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy_check import chart, compose, daemon, tools
from deploy_check.command import BUILD, ROOT, CheckError, output_of

_IMAGE = "dragoman"
_READY_S = 180
_USER = "10001"
_CONFINED = (
    *("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges"),
)
_SOCKET = ("--server", "unix:/var/lib/dragoman")


class Docker:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment

    def run(self, *words: str | Path, standard_input: str | None = None) -> str:
        return output_of(
            ("docker", *words), standard_input=standard_input, environment=self.environment
        )

    @property
    def is_own(self) -> bool:
        """Whether the daemon was started for the check. It has no network, and fetches nothing."""
        return daemon.OWN in self.environment

    def build(self, tag: str, *options: str) -> None:
        file = ROOT / "deploy" / "docker" / "Dockerfile"
        self.run("build", *self._network(), *options, "--file", file, "--tag", tag, ROOT)

    def build_postgres(self) -> None:
        folder = Path(__file__).parent / "postgres"
        self.run("build", *self._network(), "--tag", "postgres:17", folder)

    def _network(self) -> tuple[str, ...]:
        return ("--network", "host") if self.is_own else ()

    def exec(self, name: str, *words: str, standard_input: str | None = None) -> str:
        return self.run("exec", "--interactive", name, *words, standard_input=standard_input)

    def is_healthy(self, name: str, path: str = "/readyz") -> bool:
        health = ("exec", name, "python", "/opt/dragoman/health.py", path)
        words = ("docker", *health)
        return not subprocess.run(words, env=dict(self.environment), capture_output=True).returncode

    def wait_until_ready(self, *names: str) -> None:
        for name in names:
            _wait(
                lambda name=name: self.is_healthy(name),  # type: ignore[misc]
                lambda name=name: f"{name} is not ready: {self.logs(name)}",  # type: ignore[misc]
            )

    def logs(self, name: str) -> str:
        said = subprocess.run(
            ("docker", "logs", name), env=dict(self.environment), capture_output=True, text=True
        )
        return (said.stdout + said.stderr)[-2000:]

    def remove(self, *names: str) -> None:
        self.run("rm", "--force", "--volumes", *names)

    @contextmanager
    def compose(self, name: str, overrides: Path) -> Iterator[Callable[..., str]]:
        """A file that is up, with a command `compose exec`."""
        words = (tools.compose(), "--file", compose.FOLDER / name, "--file", overrides)

        def run(*more: str, standard_input: str | None = None) -> str:
            return output_of(
                (*words, *more), standard_input=standard_input, environment=self.environment
            )

        try:
            run("up", "--detach", "--no-build", "--wait", "--wait-timeout", str(_READY_S))
            yield run
        finally:
            run("down", "--volumes", "--timeout", "60")


def _wait(condition: Callable[[], bool], complaint: Callable[[], str]) -> None:
    deadline = time.monotonic() + _READY_S
    while not condition():
        if time.monotonic() > deadline:
            raise CheckError(complaint())
        time.sleep(0.5)


def _expect(found: str, wanted: str, what: str) -> None:
    if wanted not in found:
        raise CheckError(f"{what}: expected {wanted!r}, found {found!r}")


def _refused(run: Callable[[], str], reason: str) -> None:
    try:
        run()
    except CheckError as error:
        _expect(str(error), reason, "refused for another reason")
        return
    raise CheckError(f"not refused: {reason}")


# ---- the image


def _image(machine: Docker) -> None:
    offline = ("--network", "none")
    _refused(lambda: machine.run("run", "--rm", *offline, _IMAGE), "without a login")
    start = ("run", "--detach", "--name", "check-image", *offline, *_CONFINED)
    machine.run("volume", "create", "check-image")
    mount = ("--volume", "check-image:/var/lib/dragoman", "--env", "DRAGOMAN_INSECURE=true")
    try:
        machine.run(*start, *mount, _IMAGE)
        machine.wait_until_ready("check-image")
        _expect(machine.exec("check-image", "id", "-u"), _USER, "the user")
        machine.exec("check-image", "dragoman", "topic", "create", "fruit", *_SOCKET)
        produce = ("dragoman", "produce", "fruit")
        machine.exec("check-image", *produce, standard_input="3 apples\n")
        machine.run("stop", "-t", "60", "check-image")
        state = "{{.State.ExitCode}}"
        _expect(machine.run("inspect", "--format", state, "check-image"), "0", "exit status")
        machine.run("rm", "check-image")
        machine.run(*start, *mount, _IMAGE)
        machine.wait_until_ready("check-image")
        read = ("dragoman", "consume", "fruit", "--max", "1")
        _expect(machine.exec("check-image", *read), "3 apples", "after a restart")
    finally:
        machine.remove("check-image")
        machine.run("volume", "rm", "--force", "check-image")
    print("  image: unprivileged, read-only root, keeps its records", flush=True)


# ---- the files for Compose


def _without_ports(name: str) -> Path:
    """Another program may use the ports of this machine."""
    lines = [
        f"  {each}: {{ports: !override []}}" for each in compose.services(compose.FOLDER / name)
    ]
    path = BUILD / f"without-ports-{name}"
    path.write_text("\n".join(("services:", *lines, "")))
    return path


def _one_node(machine: Docker) -> None:
    name = "one-node.yaml"
    with machine.compose(name, _without_ports(name)) as run:
        execute = ("exec", "--no-TTY", "dragoman", "dragoman")
        for protocol in ("kafka", "rocketmq", "mlog"):
            produce = ("produce", "fruit", "--protocol", protocol)
            run(*execute, *produce, standard_input=f"{protocol}\n")
        inside = ("--bootstrap", "dragoman:19092")
        read = run(*execute, "consume", "fruit", "--max", "3", "--group", "shop", *inside)
        _expect(read, "kafka\nrocketmq\nmlog\n", "one node")
        run(*execute, "topic", "list", "--server", "http://dragoman:8080")
    print(f"  {name}: up, used by three protocols, down", flush=True)


def _three_nodes(machine: Docker) -> None:
    name = "three-nodes.yaml"
    with machine.compose(name, _without_ports(name)) as run:
        execute = ("exec", "--no-TTY", "node-1", "dragoman")
        login = ("--tls", "--ca-file", "/secrets/ca.pem", "--user", "shop")
        shop = (*login, "--password-file", "/secrets/shop.password")
        nodes = ("--bootstrap", "node-1:9092,node-2:9092,node-3:9092")
        run(*execute, "produce", "shop-fruit", *shop, *nodes, standard_input="3 apples\n")
        group = ("--group", "shop-a", "--max", "1")
        read = run(*execute, "consume", "shop-fruit", *shop, *nodes, *group)
        _expect(read, "3 apples", "three nodes")
        _refused(
            lambda: run(*execute, "produce", "other", *shop, *nodes, standard_input="a\n"),
            "TOPIC_AUTHORIZATION_FAILED",
        )
        admin = ("--user", "admin", "--password-file", "/secrets/admin.password")
        over_http = ("--server", "https://node-2:8080", "--ca-file", "/secrets/ca.pem")
        run(*execute, "cluster", "status", *over_http, *admin)
        run("kill", "node-2")
        run(*execute, "produce", "shop-fruit", *shop, *nodes, standard_input="4 pears\n")
    print(f"  {name}: up, rules enforced, writes without node-2, down", flush=True)


def _pipeline(machine: Docker) -> None:
    name = "pipeline.yaml"
    machine.build("dragoman-spark", "--build-arg", "EXTRAS=pipelines")
    if machine.is_own:
        machine.build_postgres()
    with machine.compose(name, _without_ports(name)) as run:
        insert = "insert into orders (shop, amount) values ('north', 7)"
        psql = ("psql", "--username=postgres", "--dbname=shop", "--command", insert)
        run("exec", "--no-TTY", "postgres", *psql)
        python = ("exec", "--no-TTY", "spark", "python", "-")
        wanted = "[(1, 'north'), (2, 'south'), (3, 'north'), (4, 'north')]"
        _wait(
            lambda: wanted in run(*python, standard_input=_CURRENT),
            lambda: f"the table is not {wanted}",
        )
    print(f"  {name}: rows of PostgreSQL are in the table, down", flush=True)


_CURRENT = """
from dragoman.pipelines import read_current
from dragoman.spark import session
rows = read_current(session(), "orders").orderBy("id").collect()
print([(row.id, row.shop) for row in rows])
"""


# ---- the chart


def _files(machine: Docker, values: dict[str, str]) -> None:
    """The projected Secrets: they belong to root and the pod's group, which may read them."""
    inside = "python -c 'import json,os,sys\nfor name, text in json.load(sys.stdin).items():\n"
    inside += ' fd = os.open(f"/to/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o440)\n'
    inside += " os.write(fd, text.encode())\n os.fchown(fd, 0, 10001)\n os.fchmod(fd, 0o440)'"
    as_root = ("--rm", "--interactive", "--network", "none", "--user", "0", "--entrypoint", "sh")
    machine.run(
        *("run", *as_root, "--volume", "check-chart-secrets:/to", _IMAGE, "-c", inside),
        standard_input=json.dumps(values),
    )


def _secrets(machine: Docker, names: Sequence[str]) -> dict[str, str]:
    made = BUILD / "chart-secrets"
    made.mkdir(parents=True, exist_ok=True)
    command = Path(sys.executable).with_name("dragoman")
    words = [word for name in names for word in ("--name", name)]
    output_of((command, "tls", "dev", made, *words))
    (made / "cluster.key").unlink(missing_ok=True)
    output_of((command, "security", "key", "new", made / "cluster.key"))
    return {
        "tls.crt": (made / "server.pem").read_text(),
        "tls.key": (made / "server-key.pem").read_text(),
        "ca.crt": (made / "ca.pem").read_text(),
        "cluster.key": (made / "cluster.key").read_text(),
        "peer.secret": secrets.token_hex(32),
        "users.toml": '[[users]]\nname = "admin"\npassword = "correct horse"\n'
        '[[rules]]\nprincipal = "User:admin"\noperation = "all"\nresource = "cluster"\n'
        '[[rules]]\nprincipal = "User:admin"\noperation = "all"\nresource = "topic"\nname = "*"\n',
    }


def _pods(machine: Docker) -> None:
    rendered = chart.render(chart.LOCKED)
    domain = "dragoman-nodes.default.svc.cluster.local"
    pods = [f"dragoman-{number}" for number in range(3)]
    volumes = [f"check-chart-{pod}" for pod in pods]
    machine.run("network", "create", "check-chart")
    try:
        _files(machine, _secrets(machine, [f"*.{domain}", "dragoman", "dragoman.default.svc"]))
        for number, (pod, volume) in enumerate(zip(pods, volumes, strict=True)):
            # A volume of Kubernetes with fsGroup.
            as_root = ("run", "--rm", "--network", "none", "--user", "0", "--entrypoint", "sh")
            mode = "chown 0:10001 /data && chmod 2775 /data && mkdir -p /data/lost+found"
            machine.run(*as_root, "--volume", f"{volume}:/data", _IMAGE, "-c", mode)
            variables = chart.environment_of(rendered, number)
            machine.run(
                *("run", "--detach", "--name", pod, "--network", "check-chart", *_CONFINED),
                *("--network-alias", f"{pod}.{domain}", "--hostname", pod, "--no-healthcheck"),
                *("--volume", f"{volume}:/var/lib/dragoman:nocopy"),
                *("--volume", "check-chart-secrets:/etc/dragoman/secrets:ro"),
                *(word for pair in variables.items() for word in ("--env", "=".join(pair))),
                *(_IMAGE, "serve"),
            )
        machine.wait_until_ready(*pods)
        to = (
            "--bootstrap",
            f"dragoman-0.{domain}:9092",
            "--ca-file",
            "/etc/dragoman/secrets/ca.crt",
        )
        admin = ("--user", "admin", "--password-file", "/tmp/password")
        machine.exec(pods[0], "sh", "-c", "cat > /tmp/password", standard_input="correct horse")
        command = ("dragoman", "produce", "fruit", *to, *admin)
        machine.exec(pods[0], *command, standard_input="3 apples\n")
        read = ("dragoman", "consume", "fruit", *to, *admin, "--max", "1")
        _expect(machine.exec(pods[0], *read), "3 apples", "the chart's nodes")
        machine.run("restart", "-t", "60", pods[1])
        machine.wait_until_ready(*pods)
    finally:
        machine.remove(*pods)
        machine.run("volume", "rm", "--force", "check-chart-secrets", *volumes)
        machine.run("network", "rm", "check-chart")
    print("  chart: three pods as containers: founded, used, one restarted", flush=True)


def check() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    with daemon.docker() as environment:
        machine = Docker(environment)
        machine.build(_IMAGE)
        print("  image: built", flush=True)
        _image(machine)
        _one_node(machine)
        _three_nodes(machine)
        _pods(machine)
        _pipeline(machine)
