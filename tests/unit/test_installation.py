"""What installs an extra, for each way in which the package can have been installed."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.installation import DirectUrl, command_for, install_command


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (None, "pip install 'dragoman[spark]'"),
        (
            {"url": "file:///home/me/my%20code", "dir_info": {"editable": True}},
            "pip install -e '/home/me/my code[spark]'",
        ),
        (
            {"url": "file:///home/me/dragoman", "dir_info": {}},
            "pip install 'dragoman[spark] @ file:///home/me/dragoman'",
        ),
        (
            {"url": "file:///tmp/dragoman-0.1.0-py3-none-any.whl", "archive_info": {"hash": "x"}},
            "pip install 'dragoman[spark] @ file:///tmp/dragoman-0.1.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://example.org/d.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'dragoman[spark] @ git+https://example.org/d.git@abc'",
        ),
    ],
)
def test_extra_is_installed_as_the_package_was(source: object, command: str) -> None:
    known = None if source is None else msgspec.convert(source, DirectUrl)
    assert command_for("spark", known) == command


@pytest.mark.parametrize("text", [None, "{", "[]", '{"url": 3}'])
def test_file_that_cannot_be_read_counts_as_an_index(
    monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return text

    monkeypatch.setattr("dragoman.installation.distribution", lambda _name: Distribution())
    assert install_command("cdc") == "pip install 'dragoman[cdc]'"
