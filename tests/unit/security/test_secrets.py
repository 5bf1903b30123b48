"""Goal: a sealed secret opens only in its own place and with its own key, and a key file that is
missing, wrong, cut short or readable by others is refused with the cure, never with a secret.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec
import pytest

from dragoman.errors import SecretError
from dragoman.operating_system import RealSecrets, create_private
from dragoman.security.key_file import ClusterKey, format_keys, new_key, parse_keys
from dragoman.security.secrets import KEY_FILE, ClusterKeys, context_of, is_reference
from dragoman.security.users import SealedSecret
from dragoman.testing.memory import MemoryDisk
from dragoman.world import DiskSecrets

OLD = new_key(bytes(range(36)))
NEW = new_key(bytes(range(36, 72)))


def keys_of(*held: ClusterKey, seed: int = 1) -> ClusterKeys:
    disk = MemoryDisk()
    source = DiskSecrets(disk)
    source.create(KEY_FILE, format_keys(held))
    keys = ClusterKeys(source, "", random.Random(seed))
    keys.load()
    if held:
        keys.use(held[0].key_id)
    return keys


def test_a_sealed_secret_opens_in_its_place() -> None:
    keys = keys_of(OLD)
    sealed = keys.seal(b"hunter2", "user/1/alice")
    assert keys.unseal(sealed, "user/1/alice") == b"hunter2"
    assert sealed.key_id == OLD.key_id
    assert b"hunter2" not in sealed.sealed
    assert "hunter2" not in repr(sealed)


@pytest.mark.parametrize("context", ["user/1/bob", "user/2/alice", "capture/1/alice", ""])
def test_a_sealed_secret_does_not_open_in_another_place(context: str) -> None:
    keys = keys_of(OLD)
    sealed = keys.seal(b"hunter2", "user/1/alice")
    with pytest.raises(SecretError, match="cannot be unsealed") as caught:
        keys.unseal(sealed, context)
    assert "hunter2" not in str(caught.value)


def test_every_changed_or_missing_byte_is_noticed() -> None:
    keys = keys_of(OLD)
    sealed = keys.seal(b"hunter2", "c")
    for index in range(len(sealed.sealed)):
        changed = bytearray(sealed.sealed)
        changed[index] ^= 1
        for data in (bytes(changed), sealed.sealed[:index]):
            with pytest.raises(SecretError):
                keys.unseal(msgspec.structs.replace(sealed, sealed=data), "c")


def test_a_repeated_nonce_reveals_only_that_two_secrets_are_equal() -> None:
    # As on a machine that was restored from a snapshot with the state of its random numbers.
    one, two = keys_of(OLD, seed=7), keys_of(OLD, seed=7)
    assert one.seal(b"a", "c") == two.seal(b"a", "c")
    one, two = keys_of(OLD, seed=7), keys_of(OLD, seed=7)
    first, second = one.seal(b"aaaaaaaa", "c").sealed, two.seal(b"aaaaaaab", "c").sealed
    assert first[:17] == second[:17]
    assert all(first[at : at + 4] != second[at : at + 4] for at in range(17, len(first) - 4))


def test_equal_secrets_look_different() -> None:
    keys = keys_of(OLD)
    assert keys.seal(b"same", "c") != keys.seal(b"same", "c")


def test_a_secret_of_an_older_key_opens_while_the_file_has_that_key() -> None:
    sealed = keys_of(OLD).seal(b"hunter2", "c")
    assert keys_of(NEW, OLD).unseal(sealed, "c") == b"hunter2"
    with pytest.raises(SecretError, match=f"key {OLD.key_id} is not in the cluster key file"):
        keys_of(NEW).unseal(sealed, "c")


def test_another_key_under_the_same_id_is_noticed() -> None:
    sealed = keys_of(OLD).seal(b"hunter2", "c")
    impostor = keys_of(ClusterKey(OLD.key_id, NEW.material))
    with pytest.raises(SecretError, match="another key has the same id"):
        impostor.unseal(sealed, "c")
    with pytest.raises(SecretError, match="is not the cluster's key of that id"):
        impostor.require(OLD.key_id, OLD.check)
    keys_of(OLD).require(OLD.key_id, OLD.check)


def test_a_node_without_the_key_of_the_cluster_names_the_cure() -> None:
    with pytest.raises(SecretError, match="copy the cluster key file of another node"):
        keys_of(NEW).require(OLD.key_id, OLD.check)
    empty = ClusterKeys(DiskSecrets(MemoryDisk()), "", random.Random(1))
    empty.load()
    with pytest.raises(SecretError, match="this node has no key file"):
        empty.require(OLD.key_id, OLD.check)


def test_nothing_is_sealed_without_a_key_of_the_cluster() -> None:
    keys = keys_of(OLD)
    keys.use("")
    with pytest.raises(SecretError, match="the cluster has no key"):
        keys.seal(b"hunter2", "c")


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(SecretError, match="is empty"):
        keys_of(OLD).seal(b"", "c")


def test_a_node_alone_makes_its_key_file_once(tmp_path: Path) -> None:
    keys = ClusterKeys(RealSecrets(str(tmp_path)), "", random.Random(1))
    keys.load()
    made = keys.make()
    path = tmp_path / KEY_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    again = ClusterKeys(RealSecrets(str(tmp_path)), "", random.Random(2))
    again.load()
    assert again.held == {made.key_id: made}
    with pytest.raises(FileExistsError):
        create_private(str(path), b"other")
    assert os.listdir(tmp_path) == [KEY_FILE]


# ---- key files


def test_a_key_file_lists_the_current_key_first() -> None:
    assert list(parse_keys(format_keys([NEW, OLD]))) == [NEW.key_id, OLD.key_id]
    assert parse_keys(format_keys([NEW, OLD]))[OLD.key_id] == OLD


def test_a_key_file_cut_within_a_line_is_refused() -> None:
    data = format_keys([NEW, OLD])
    ends = [data.index(OLD.key_id.encode()) - 1, len(data) - 1]
    for end in range(len(data)):
        if end in (ends[0], ends[0] + 1):
            # Whole lines are missing.
            assert list(parse_keys(data[:end])) == [NEW.key_id]
        elif end == ends[1]:
            # Only the last line break is missing.
            assert parse_keys(data[:end]) == parse_keys(data)
        else:
            with pytest.raises(SecretError, match="cut short"):
                parse_keys(data[:end])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"# only a comment\n",
        b"\xff\xfe",
        b"00000000\n",
        b"0000000g " + b"A" * 43 + b"=\n",
        b"00000000 " + b"A" * 40 + b"\n",
        b"00000000 " + b"A" * 44 + b"\n",
        format_keys([OLD, OLD]),
        b"".join(b"%08x %s=\n" % (n, b"A" * 43) for n in range(101)),
    ],
)
def test_a_key_file_that_is_none_is_refused_without_quoting_it(text: bytes) -> None:
    with pytest.raises(SecretError) as caught:
        parse_keys(text)
    assert "AAAA" not in str(caught.value)


def test_keys_do_not_show_their_bytes() -> None:
    assert repr(OLD) == f"ClusterKey(key_id={OLD.key_id!r})"
    assert OLD.check != OLD.derived("secrets")[:16]
    assert OLD.check not in OLD.derived("secrets")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o660])
def test_a_key_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    path.write_bytes(format_keys([OLD]))
    path.chmod(mode)
    if os.geteuid() == 0 and mode == 0o640:
        os.chown(path, 12345, 12345)
    keys = ClusterKeys(RealSecrets(str(tmp_path)), str(path), random.Random(1))
    with pytest.raises(SecretError, match=r"other users may use it|belongs to another user"):
        keys.load()


def test_a_named_key_file_must_exist(tmp_path: Path) -> None:
    keys = ClusterKeys(RealSecrets(str(tmp_path)), str(tmp_path / "none"), random.Random(1))
    with pytest.raises(SecretError, match="dragoman security key new"):
        keys.load()


def test_a_key_file_that_breaks_while_running_keeps_the_keys_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "key"
    create_private(str(path), format_keys([OLD]))
    keys = ClusterKeys(RealSecrets(str(tmp_path)), str(path), random.Random(1))
    keys.load()
    keys.use(OLD.key_id)
    sealed = keys.seal(b"hunter2", "c")
    for damage in (lambda: path.write_bytes(b"x"), path.unlink):
        damage()
        with pytest.raises(SecretError):
            keys.load()
        assert keys.unseal(sealed, "c") == b"hunter2"


def test_a_key_added_to_the_file_is_found_when_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "key"
    create_private(str(path), format_keys([OLD]))
    keys = ClusterKeys(RealSecrets(str(tmp_path)), str(path), random.Random(1))
    keys.load()
    path.write_bytes(format_keys([NEW, OLD]))
    keys.require(NEW.key_id, NEW.check)
    assert list(keys.held) == [NEW.key_id, OLD.key_id]


# ---- references


def test_references_are_resolved_on_this_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    monkeypatch.setenv("SHOP_PASSWORD", "hunter3")
    keys = ClusterKeys(RealSecrets(str(tmp_path)), "", random.Random(1))
    assert keys.resolve(f"file:{tmp_path}/password") == "hunter2"
    assert keys.resolve("env:SHOP_PASSWORD") == "hunter3"
    assert keys.resolve("hunter4") == "hunter4"
    assert is_reference("env:X")
    assert not is_reference("environment")


def test_references_that_cannot_be_resolved_say_why(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "zero").write_bytes(b"a\0b")
    (tmp_path / "large").write_bytes(b"a" * (65 << 10))
    os.mkfifo(tmp_path / "pipe")
    keys = ClusterKeys(RealSecrets(str(tmp_path)), "", random.Random(1))
    wrong = {
        "file:relative": "absolute path",
        f"file:{tmp_path}/none": "No such file",
        f"file:{tmp_path}": "not a regular file",
        f"file:{tmp_path}/pipe": "not a regular file",
        f"file:{tmp_path}/empty": "is empty",
        f"file:{tmp_path}/binary": "no UTF-8",
        f"file:{tmp_path}/zero": "zero byte",
        f"file:{tmp_path}/large": "more than",
        "env:SURELY_NOT_SET": "no variable",
    }
    for reference, why in wrong.items():
        with pytest.raises(SecretError, match=why):
            keys.resolve(reference)


def test_contexts_of_different_things_differ() -> None:
    contexts = {
        context_of(kind, name, incarnation)
        for kind in ("user", "capture")
        for name in ("a", "a/b", "b")
        for incarnation in ("1", "2")
    }
    assert len(contexts) == 12
    assert SealedSecret("k", b"x") == SealedSecret("k", b"x")
