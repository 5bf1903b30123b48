"""Goal: what is published installs, runs and stops; it holds what it should and nothing else.

Method: build the wheel, install it in an environment without anything of this checkout, and use
the installed command. Dependencies are borrowed from the environment that runs the tests: that
they can be fetched is what setting up the tests has shown already.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from dragoman import __version__

ROOT = Path(__file__).parents[2]
#: Nothing of the caller's may lead Python to this checkout.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PYTHON", "DRAGOMAN_", "COV_"))
}


def _build(directory: Path, environment: dict[str, str]) -> Path:
    subprocess.run(
        [
            *(sys.executable, "-m", "build", "--wheel", "--no-isolation"),
            *("--outdir", str(directory), str(ROOT)),
        ],
        check=True,
        capture_output=True,
        env=environment,
    )
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(tmp_path_factory.mktemp("wheel"), ENVIRONMENT)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel in it."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, with_pip=False, symlinks=True)
    python = directory / "bin" / "python"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"),
            *("--quiet", "--no-index", "--disable-pip-version-check", str(wheel)),
        ],
        check=True,
        env=ENVIRONMENT,
    )
    (packages,) = directory.glob("lib/python*/site-packages")
    # A path file of a directory that is named in a path file is not read: an editable install of
    # this checkout stays unknown.
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    return directory / "bin"


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


# ---- contents


def test_wheel_has_every_module_the_type_marker_and_the_licence(wheel: Path) -> None:
    names = set(_names(wheel))
    source = ROOT / "src"
    for path in source.rglob("*.py"):
        assert path.relative_to(source).as_posix() in names
    assert "dragoman/py.typed" in names
    assert "dragoman/spark/log4j2.properties" in names
    assert f"dragoman-{__version__}.dist-info/licenses/LICENSE" in names


def test_wheel_has_nothing_that_belongs_to_the_checkout_only(wheel: Path) -> None:
    for name in _names(wheel):
        ours = ("dragoman/", "pyspark_dragoman.py", f"dragoman-{__version__}.dist-info/")
        assert name.startswith(ours), name
        assert "__pycache__" not in name
        assert "/test_" not in name
        assert "/demo/" not in name


def test_wheel_without_a_compiler_lacks_the_compiled_library_only(
    wheel: Path, tmp_path: Path
) -> None:
    pure = _build(tmp_path, {**ENVIRONMENT, "CC": "no-such-compiler"})
    assert pure.name.endswith("-py3-none-any.whl")
    library = {"dragoman/spark/batches/_records.so"} if shutil.which("cc") else set()
    assert set(_names(wheel)) - set(_names(pure)) == library
    assert ("-py3-none-linux_" in wheel.name) == bool(library)


def test_metadata_is_what_an_index_shows(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"dragoman-{__version__}.dist-info/METADATA").decode()
    metadata = Parser().parsestr(text)
    assert metadata["Name"] == "dragoman"
    assert metadata["Version"] == __version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    extras = "all bench cdc console demo dev docs otel pipelines spark"
    assert set(metadata.get_all("Provides-Extra", [])) == set(extras.split())
    (uvloop,) = (each for each in metadata.get_all("Requires-Dist", []) if "uvloop" in each)
    assert uvloop.endswith("; sys_platform != 'win32'")
    page = str(metadata.get_payload())
    assert "make demo" in page
    # An index has none of the files that README.md leads to.
    assert re.findall(r"\]\((?!https?:)[^)]*\)", page) == []
    assert "Where to begin · start · clients" in page


# ---- use


def test_installed_package_is_the_wheel_and_not_the_checkout(installed: Path) -> None:
    found = subprocess.run(
        [installed / "python", "-c", "import dragoman; print(dragoman.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT,
    )
    assert str(installed.parent) in found.stdout
    assert site.getsitepackages()[0] not in found.stdout


def test_installed_command_says_its_version(installed: Path) -> None:
    said = subprocess.run(
        [installed / "dragoman", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT,
    )
    assert said.stdout == f"dragoman {__version__}\n"


def test_installed_broker_becomes_ready_and_stops_on_a_signal(
    installed: Path, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [
            *(installed / "dragoman", "serve", "--data", str(tmp_path / "data")),
            *("--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "ready\n":
                break
        assert [line.partition(" on ")[0] for line in lines] == ["kafka", "http", "ready\n"]
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, errors
