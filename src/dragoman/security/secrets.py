"""Secrets that the metadata stores, sealed with the cluster's key, and references to secrets that
are stored elsewhere.

A sealed secret is AES-256-SIV (RFC 5297, docs/decisions/0024-cryptography.md) under a key derived
from the cluster's:

    version 1 (1 byte) | nonce (16 bytes) | synthetic IV (16 bytes) | encrypted secret

Version, key id and context are authenticated with it. The context names the place of the secret: it
cannot be unsealed in another place, nor for a later user or capture of the same name.

All nodes have the same key file. The metadata says which of its keys is current (`use`), so that
two nodes never seal with different keys. Without a current key, nothing can be sealed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from dragoman.errors import SecretError
from dragoman.limits import CLUSTER_KEY_FILE_BYTES_MAX, REFERENCED_SECRET_BYTES_MAX
from dragoman.security.key_file import KEY_BYTES, ClusterKey, format_keys, new_key, parse_keys
from dragoman.security.users import SealedSecret, User
from dragoman.world import Random, SecretSource

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

#: The key file of a node without `cluster.key.file`, in its data directory.
KEY_FILE: Final = "cluster.key"
_VERSION: Final = b"\x01"
_NONCE_BYTES: Final = 16
#: Version, nonce and synthetic IV.
_OVERHEAD: Final = 1 + _NONCE_BYTES + 16
_REFERENCES: Final = ("file:", "env:")


def context_of(kind: str, name: str, incarnation: str) -> str:
    """The context of a secret: the kind and name of what it belongs to, and which use of the name.

    The name is last because it may contain any character.
    """
    return f"{kind}/{incarnation}/{name}"


def signing_secret_context(user: User) -> str:
    """The context of the secret that signs a user's requests."""
    return context_of("signing-secret", user.name, user.incarnation)


def is_reference(text: str) -> bool:
    """Whether a text refers to a secret that is stored elsewhere."""
    return text.startswith(_REFERENCES)


class ClusterKeys:
    """The keys of the cluster, as the key file of this node has them."""

    def __init__(self, source: SecretSource, path: str, random: Random) -> None:
        """`path` is empty for the key file in the data directory."""
        self._source = source
        self._random = random
        self.path = path or KEY_FILE
        #: Whether an operator has named the key file, so that it has to exist.
        self.is_configured = bool(path)
        self._keys: dict[str, ClusterKey] = {}
        #: The key that seals; empty until the metadata names one.
        self.current = ""

    # ---- keys

    @property
    def held(self) -> Mapping[str, ClusterKey]:
        """The keys by id, in the order of the file."""
        return self._keys

    def load(self) -> None:
        """Read the key file again; keys read before stay if that fails. Raises `SecretError`."""
        try:
            data = self._source.read(self.path, CLUSTER_KEY_FILE_BYTES_MAX, is_private=True)
        except FileNotFoundError:
            if self.is_configured:
                raise SecretError(
                    f"cluster.key.file: there is no {self.path}: copy it from another node, or make"
                    f" the first one with `dragoman security key new {self.path}`"
                ) from None
            return
        except OSError as error:
            raise SecretError(f"the cluster key file {self.path}: {error.strerror}") from None
        try:
            self._keys = parse_keys(data)
        except SecretError as error:
            raise SecretError(f"the cluster key file {self.path}: {error}") from None

    def make(self) -> ClusterKey:
        """Make the first key of a node on its own, and its file. Raises `SecretError`."""
        assert not self._keys
        assert not self.is_configured
        key = new_key(self._random.getrandbits(8 * (KEY_BYTES + 4)).to_bytes(KEY_BYTES + 4, "big"))
        try:
            self._source.create(self.path, format_keys([key]))
        except OSError as error:
            raise SecretError(
                f"the cluster key file {self.path} cannot be made: {error.strerror}"
            ) from None
        self._keys = {key.key_id: key}
        return key

    def use(self, key_id: str) -> None:
        """Seal with this key from now on, as the metadata says."""
        self.current = key_id

    def require(self, key_id: str, check: bytes) -> None:
        """Raises `SecretError` unless this node has the key that the cluster uses."""
        if key_id not in self._keys:
            self.load()
        key = self._keys.get(key_id)
        if key is None:
            raise SecretError(
                f"the cluster's secrets are sealed with key {key_id}, and {self._description()}:"
                " put the file back, or copy the cluster key file of another node and name it with"
                " cluster.key.file; if no copy is left, start with cluster.key.lost=true"
            )
        if key.check != check:
            raise SecretError(
                f"the key {key_id} in {self.path} is not the cluster's key of that id: copy the"
                " cluster key file of another node"
            )

    def _description(self) -> str:
        if not self._keys:
            return f"this node has no key file {self.path}"
        return f"{self.path} of this node has only {', '.join(self._keys)}"

    def derived(self, purpose: str) -> bytes:
        """Bytes that only nodes with the cluster's current key can derive; empty without one."""
        key = self._keys.get(self.current)
        return b"" if key is None else key.derived(purpose)

    # ---- secrets in the metadata

    def seal(self, plain: bytes, context: str) -> SealedSecret:
        """Raises `SecretError` while the cluster has no key."""
        if not self.current:
            raise SecretError(
                "the cluster has no key to seal a secret with: give every node the same file with"
                " cluster.key.file (`dragoman security key new FILE` makes it)"
            )
        if not plain:
            raise SecretError(f"the secret of {context} is empty")
        nonce = self._random.getrandbits(8 * _NONCE_BYTES).to_bytes(_NONCE_BYTES, "big")
        key = self._key(self.current)
        sealed = _cipher(key).encrypt(plain, _associated(key, context, nonce))
        return SealedSecret(key.key_id, _VERSION + nonce + sealed)

    def unseal(self, secret: SealedSecret, context: str) -> bytes:
        """Raises `SecretError` for an unknown key, another context, or damaged bytes."""
        key = self._key(secret.key_id)
        data = secret.sealed
        if len(data) < _OVERHEAD or not data.startswith(_VERSION):
            raise SecretError("the sealed secret is cut short, or of a newer release")
        nonce, sealed = data[1 : 1 + _NONCE_BYTES], data[1 + _NONCE_BYTES :]
        from cryptography.exceptions import InvalidTag

        try:
            return _cipher(key).decrypt(sealed, _associated(key, context, nonce))
        except InvalidTag:
            raise SecretError(
                f"the secret of {context} cannot be unsealed with key {key.key_id}: it is damaged,"
                " was moved, or another key has the same id"
            ) from None

    def _key(self, key_id: str) -> ClusterKey:
        if key_id not in self._keys:
            # An operator may have added the key since.
            self.load()
        key = self._keys.get(key_id)
        if key is None:
            raise SecretError(f"key {key_id} is not in the cluster key file: {self._description()}")
        return key

    # ---- secrets stored elsewhere

    def resolve(self, text: str) -> str:
        """The secret that a reference names, on this node: `file:/path` is the contents of a file
        without its last line break, `env:NAME` a variable of the node's environment. Other texts
        stand for themselves.

        Raises `SecretError`. The result is used at once and stored nowhere.
        """
        scheme, _, name = text.partition(":")
        if not is_reference(text):
            return text
        found = self._variable(name) if scheme == "env" else self._file(name)
        if not found:
            raise SecretError(f"{text} is empty on this node")
        if "\0" in found:
            raise SecretError(f"{text} has a zero byte on this node")
        return found

    def _variable(self, name: str) -> str:
        found = self._source.variable(name)
        if found is None:
            raise SecretError(f"the environment of this node has no variable {name}")
        return found

    def _file(self, path: str) -> str:
        if not path.startswith("/"):
            raise SecretError(f"file:{path}: expected the absolute path of a file")
        try:
            data = self._source.read(path, REFERENCED_SECRET_BYTES_MAX, is_private=False)
            return data.decode().removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise SecretError(f"file:{path} on this node: {error.strerror}") from None
        except UnicodeDecodeError:
            raise SecretError(f"file:{path} on this node is no UTF-8 text") from None


def _cipher(key: ClusterKey) -> AESSIV:
    # Imported here: a node without secrets starts without it.
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    return AESSIV(key.derived("secrets"))


def _associated(key: ClusterKey, context: str, nonce: bytes) -> list[bytes]:
    # As in RFC 5297, the nonce is the last of the strings, which stay apart from each other.
    return [_VERSION, key.key_id.encode(), context.encode("utf-8", "surrogatepass"), nonce]
