"""README.md as an index shows it: without the links and pictures that lead into this repository.

An index has no files beside the page, so it would show broken links. Their text stays.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

README = "README.md"
_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n?", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")


class ReadmeOfIndex(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, README).read_text(encoding="utf-8")
        text = _LINK.sub(r"\1", _PICTURE.sub("", text))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
