"""Goal: no damage to a data directory leads to a wrong byte, to silence, a traceback or a hang.

Method: a slice of what `make damage` runs, with a fixed seed: one wound for each kind of file, of a
directory whose node was killed. A broker serves each of them in this process.
"""

from __future__ import annotations

from random import Random

import pytest

from damage.image import Image, build, disk_of, files_of, serving
from damage.judge import judge
from damage.wounds import WOUNDS, Wound, inflict, kind_of
from dragoman.offline import repair_disk

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


@pytest.mark.parametrize("left", ["journal/", "journal/mark", "partitions/"])
def test_an_adopted_directory_is_led_in_a_later_term(image: Image, left: str) -> None:
    """Every start begins a term. What is lost with `node.json` may hold the last ballot."""
    disk = disk_of(image.files)
    for _ in range(3):
        with serving(disk) as broker:
            broker.stop()
    files = {
        path: data
        for path, data in files_of(disk).items()
        if path != "node.json" and (not path.startswith("journal/") or path.startswith(left))
    }
    verdict = judge(image, files, Wound("node.json", "delete", "node.json", 0))
    assert verdict.result == "adopted, whole, reported"


@pytest.mark.parametrize("other", ["metadata.snapshot", "partitions/2-"])
def test_records_in_the_journal_may_be_of_partitions_that_are_lost_with_the_metadata(
    image: Image, other: str
) -> None:
    """Without a directory yet, only the metadata names them: `log repair` keeps the journal."""
    (path,) = (each for each in image.files if kind_of(each) == "metadata segment")
    swapped = max(
        each for each in image.files if each.startswith(other) and not each.endswith(".json")
    )
    files = image.files | {path: image.files[swapped], swapped: image.files[path]}
    disk = disk_of(files)
    report = repair_disk(disk, is_dry=False)
    assert any("partitions that the damaged metadata does not name" in each for each in report.left)
    assert any("quarantine/journal_" in each for each in files_of(disk))
    verdict = judge(image, files, Wound("metadata segment", "swap", path, 0, swapped))
    assert verdict.result != "FAILED", verdict.detail


def test_metadata_in_front_of_a_snapshot_that_is_gone_is_reported(image: Image) -> None:
    """The journal has entries behind the snapshot, which the start must not drop in silence."""
    (path,) = (each for each in image.files if kind_of(each) == "metadata segment")
    (other,) = (each for each in image.files if kind_of(each) == "metadata manifest")
    files = image.files | {path: image.files[other], other: image.files[path]}
    verdict = judge(image, files, Wound("metadata segment", "swap", path, 0, other))
    assert verdict.result == "refused, repaired, lost, reported", verdict.detail
