"""The tree of names: plans change nothing until applied, and undoing brings the names back.

What the operations mean for users is in `test_disk_contract.py`.
"""

from __future__ import annotations

import pytest

from dragoman.testing.file_tree import FileNode, FileTree


def tree_with(*paths: str) -> FileTree[FileNode]:
    tree: FileTree[FileNode] = FileTree(1 << 20)
    for path in paths:
        for group in tree.plan_directories(path.rpartition("/")[0]):
            tree.apply(group)
        tree.apply(tree.plan_add(path, FileNode()))
    return tree


def paths(tree: FileTree[FileNode]) -> list[str]:
    return [path for path, _ in tree.files()]


def test_a_plan_changes_nothing_and_undo_takes_back_what_apply_did() -> None:
    tree = tree_with("a", "d/b")
    kept = tree.file("a"), tree.file("d/b")
    for edits in (
        tree.plan_rename("a", "d/b"),
        tree.plan_remove("a"),
        tree.plan_link("a", "z"),
        tree.plan_add("d/n", FileNode()),
    ):
        assert paths(tree) == ["a", "d/b"]
        tree.apply(edits)
        assert paths(tree) != ["a", "d/b"]
        tree.undo(edits)
        assert paths(tree) == ["a", "d/b"]
        assert (tree.file("a"), tree.file("d/b")) == kept


def test_each_missing_directory_is_a_group_of_its_own() -> None:
    tree = tree_with("d/a")
    groups = tree.plan_directories("d/e/f")
    assert [len(group) for group in groups] == [1, 1]
    tree.apply(groups[0])
    assert tree.exists("d/e")
    assert not tree.exists("d/e/f")
    assert tree.plan_directories("d/e") == []
    assert tree.plan_directories("") == []


def test_files_come_once_for_each_name_in_order() -> None:
    tree = tree_with("b", "a/z", "a/c", "c")
    tree.apply(tree.plan_link("b", "a/b"))
    assert paths(tree) == ["a/b", "a/c", "a/z", "b", "c"]


def test_recount_finds_links_and_space_from_the_names_alone() -> None:
    tree = tree_with("a", "b")
    tree.apply(tree.plan_link("a", "c"))
    tree.file("a").data += bytes(10)
    tree.file("b").data += bytes(5)
    tree.opened(tree.file("b"))
    tree.recount()
    assert tree.used_bytes == 15
    assert (tree.file("a").links, tree.file("b").links) == (2, 1)
    assert tree.file("b").opens == 0


def test_the_root_has_no_name_that_could_be_changed() -> None:
    tree = tree_with("a")
    with pytest.raises(ValueError, match="not a plain path"):
        tree.plan_remove("")
    with pytest.raises(ValueError, match="not a plain path"):
        tree.plan_rename("a", "")
