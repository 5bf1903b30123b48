"""A Docker daemon: the machine's own, or one of Debian's packages that runs while the check does.

The latter needs root. It has no images and fetches none: the image that the Dockerfile builds on is
made of Debian's packages by `debootstrap`, with the Python of that release of Debian.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deploy_check import tools
from deploy_check.command import BUILD, ENVIRONMENT, CheckError, NotRun, output_of

_PACKAGES = (
    *("docker.io", "containerd", "runc", "iptables", "libip4tc2", "libip6tc2", "libnfnetlink0"),
    *("libnetfilter-conntrack3", "libnftnl11", "libxtables12"),
)
#: The release whose Python is that of the Dockerfile.
_DEBIAN, _BASE = "trixie", "python:3.13-slim"
#: In the environment of a daemon that was started here.
OWN = "DEPLOY_CHECK_DAEMON"
_START_S = 60
_AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"


@contextmanager
def docker() -> Iterator[Mapping[str, str]]:
    """The environment in which `docker` finds a daemon."""
    program = tools.program("docker")
    # The builder of every daemon; Compose would look for a plug-in.
    environment = {**ENVIRONMENT, "DOCKER_BUILDKIT": "0"}
    if subprocess.run((program, "info"), env=environment, capture_output=True).returncode == 0:
        yield environment
        return
    if os.geteuid() != 0:
        raise NotRun("there is no Docker daemon, and only root may start one")
    with _own(environment) as found:
        yield found


@contextmanager
def _own(environment: dict[str, str]) -> Iterator[Mapping[str, str]]:
    files = tools.debian_package(*_PACKAGES)
    programs, libraries = files / "usr" / "sbin", files / "usr" / "lib" / "x86_64-linux-gnu"
    for name in ("iptables", "iptables-save", "iptables-restore", "ip6tables"):
        link = programs / name
        if not link.is_symlink():
            link.symlink_to("xtables-nft-multi")
    home = BUILD / "docker"
    home.mkdir(parents=True, exist_ok=True)
    socket = home / "docker.sock"
    paths = {
        "PATH": f"{programs}:{files}/usr/bin:{environment['PATH']}",
        "LD_LIBRARY_PATH": str(libraries),
        "XTABLES_LIBDIR": f"{libraries}/xtables",
        # Root directories are changed without pivot_root, which a RAM disk refuses.
        "DOCKER_RAMDISK": "true",
    }
    log = (home / "log").open("w")
    daemon = subprocess.Popen(
        (
            *(programs / "dockerd", "--host", f"unix://{socket}", "--pidfile", home / "pid"),
            *("--data-root", home / "data", "--exec-root", home / "run"),
            # Networks of the files exist, and none leads to the outside.
            *("--bridge=none", "--iptables=false", "--ip6tables=false"),
        ),
        env={**environment, **paths},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    found = {**environment, "DOCKER_HOST": f"unix://{socket}", OWN: "yes"}
    try:
        _wait(daemon, found, home / "log")
        _provide_base(found)
        yield found
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(timeout=_START_S)
        log.close()
        # A daemon leaves the network of its machine mounted, and so its directory undeletable.
        for mounted in home.glob("run/netns/*"):
            subprocess.run(("umount", mounted), check=False)


def _wait(daemon: subprocess.Popen[bytes], environment: Mapping[str, str], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    info = ("docker", "info")
    while subprocess.run(info, env=dict(environment), capture_output=True).returncode:
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise NotRun(f"no Docker daemon runs on this machine:\n{log.read_text()[-2000:]}")
        time.sleep(0.5)


def _provide_base(environment: Mapping[str, str]) -> None:
    if output_of(("docker", "images", "--quiet", _BASE), environment=environment):
        return
    print(f"  making a stand-in for {_BASE}", flush=True)
    files = tools.debian_package("debootstrap")
    script = files / "usr" / "sbin" / "debootstrap"
    root = BUILD / _DEBIAN
    if not (root / "complete").exists():
        shutil.rmtree(root, ignore_errors=True)
        include = "--include=python3,python3-venv,python3-pip,ca-certificates"
        output_of(
            (script, "--variant=minbase", include, _DEBIAN, root),
            environment={
                **environment,
                "DEBOOTSTRAP_DIR": str(files / "usr" / "share" / "debootstrap"),
            },
        )
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        # Whom this machine trusts, its containers trust.
        shutil.copyfile(Path("/", _AUTHORITIES), root / _AUTHORITIES)
        (root / "complete").touch()
    archive = BUILD / "base.tar"
    without = ("--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./var/cache/apt/archives/*")
    output_of(("tar", "--create", "--file", archive, "--directory", root, *without, "."))
    output_of(("docker", "import", archive, _BASE), environment=environment)
    archive.unlink()
    if not output_of(("docker", "images", "--quiet", _BASE), environment=environment):
        raise CheckError(f"there is no {_BASE}")
