"""Goal: no damage to a data directory leads to a wrong byte, to silence, a traceback or a hang.

Method: a slice of what `make damage` runs, with a fixed seed: one wound for each kind of file, of a
directory whose node was killed. A broker serves each of them in this process.
"""

from __future__ import annotations

from random import Random

import pytest

from damage.image import Image, build
from damage.judge import judge
from damage.wounds import WOUNDS, Wound, inflict, kind_of

KINDS = (
    "index",
    "internal segment",
    "journal",
    "journal mark",
    "manifest",
    "metadata manifest",
    "metadata segment",
    "metadata.snapshot",
    "node.json",
    "producers",
    "segment",
)


@pytest.fixture(scope="module")
def image() -> Image:
    return build("killed", is_clean=False)


def test_the_image_has_every_kind_of_file(image: Image) -> None:
    assert set(KINDS) <= {kind_of(path) for path in image.files}
    assert sum(map(len, image.records.values())) > 300
    assert image.commits["readers"]["plain", 0] == 120


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_never_silent(image: Image, kind: str) -> None:
    random = Random(len(kind))
    wounded = inflict(image.files, kind, random.choice(WOUNDS), random)
    assert wounded is not None
    verdict = judge(image, *wounded)
    assert verdict.result != "FAILED", (wounded[1], verdict.detail)


def test_a_directory_is_adopted_without_its_mark(image: Image) -> None:
    files = {path: data for path, data in image.files.items() if path != "journal/mark"}
    del files["node.json"]
    verdict = judge(image, files, Wound("node.json", "delete", "node.json", 0))
    assert verdict.result == "adopted, whole, reported"
