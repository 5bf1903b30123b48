"""The unit of systemd: its words, its exposure, and the settings that it comes with."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from deploy_check import tools
from deploy_check.command import BUILD, ROOT, CheckError, output_of
from deploy_check.settings import settings_of

_FOLDER = ROOT / "deploy" / "systemd"
#: In tenths, of 10.0: systemd calls what is below 2.0 well protected.
_EXPOSURE_MAX = 20


def check() -> None:
    analyze = tools.program("systemd-analyze")
    unit = _FOLDER / "dragoman.service"
    # The command has to exist to be verified.
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", unit.read_text(), flags=re.M)
    copy = BUILD / unit.name
    BUILD.mkdir(parents=True, exist_ok=True)
    copy.write_text(text)
    said = output_of((analyze, "verify", "--man=no", copy))
    if said:
        raise CheckError(said)
    threshold = f"--threshold={_EXPOSURE_MAX}"
    said = output_of((analyze, "security", "--offline=true", "--no-pager", threshold, copy))
    print(f"  {said.strip().splitlines()[-1].removeprefix('→ ')}")
    settings = settings_of({}, _FOLDER / "dragoman.toml")
    if Path(settings.data) != Path("/var/lib") / _word(text, "StateDirectory"):
        raise CheckError("the data directory is not the unit's StateDirectory")


def _word(unit: str, key: str) -> str:
    found = re.search(rf"^{key}=(.*)$", unit, re.MULTILINE)
    if found is None:
        raise CheckError(f"the unit has no {key}")
    return found[1]
