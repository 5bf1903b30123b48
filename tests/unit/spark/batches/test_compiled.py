"""Goal: the compiled library is used exactly when it is there and made of the source beside it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dragoman.spark.batches import BatchDecoder, compiled


@pytest.fixture
def compiler() -> str:
    found = shutil.which("cc")
    if found is None:
        pytest.skip("no C compiler: numpy does all the work")
    return found


def test_installation_has_compiled_the_library_when_it_could(compiler: str) -> None:
    assert compiled.load() is not None


def test_library_of_another_source_is_left_alone(compiler: str, tmp_path: Path) -> None:
    library = tmp_path / "_records.so"
    source = Path(compiled.__file__).with_name("records.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    assert compiled.load(library) is None


def test_without_a_library_numpy_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.load(tmp_path / "missing.so") is None
    (tmp_path / "broken.so").write_bytes(b"no library")
    assert compiled.load(tmp_path / "broken.so") is None
    monkeypatch.setenv("DRAGOMAN_SPARK_RECORDS", "numpy")
    assert compiled.load() is None
    with pytest.raises(ValueError, match="is missing or was not"):
        BatchDecoder(["value"], include_headers=False, use_compiled=True)
