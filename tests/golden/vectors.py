"""The encoded values as they were first: `vectors.json`, from a name to hexadecimal.

    python -m golden.vectors

adds what is missing. It changes nothing that is there: nodes of other releases and data directories
have those bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from golden.forms import FORMS, Form
from golden.values import VALUES

PATH = Path(__file__).with_name("vectors.json")


def read() -> dict[str, bytes]:
    return {name: bytes.fromhex(data) for name, data in json.loads(PATH.read_text()).items()}


def form_of(name: str) -> Form:
    return FORMS[name.partition(" ")[0]]


def encode(name: str) -> bytes:
    return form_of(name).encode(VALUES[name])


def main() -> int:
    known = read() if PATH.exists() else {}
    changed = [name for name in VALUES if name in known and encode(name) != known[name]]
    gone = known.keys() - VALUES.keys()
    for name in (*changed, *sorted(gone)):
        print(f"{name}: what is encoded must stay as it is; see {PATH.name}", file=sys.stderr)
    if changed or gone:
        return 1
    whole = {name: (known.get(name) or encode(name)).hex() for name in VALUES}
    PATH.write_text(json.dumps(whole, indent=1) + "\n")
    print(f"{len(whole) - len(known)} vectors added, {len(whole)} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
