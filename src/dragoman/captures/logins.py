"""How the process of a capture logs in to the nodes: as a principal of its own, with a password
that no user has and nothing stores.

    name        __capture.NAME
    password    HMAC of the cluster's key over the capture's name, incarnation and owner

Every node derives the same password from its key file, so the process can write to whichever nodes
lead its topics. It logs in by SCRAM, which sends no password. The login ends with the capture, with
its owner, and with the key; a node without a cluster key derives it from a secret of its own, which
only this node knows.
"""

from __future__ import annotations

import hmac
from typing import Final

from dragoman.captures.control import KafkaLogin
from dragoman.captures.definition import TRANSACTIONAL_PREFIX
from dragoman.captures.rights import CAPTURE_KIND, objection_to_owner
from dragoman.captures.stored import owner_of
from dragoman.cluster.events import Capture
from dragoman.cluster.metadata import MetadataImage
from dragoman.security.access import Caller, Principal
from dragoman.security.secrets import ClusterKeys
from dragoman.world import Random

_PURPOSE: Final = "capture logins"
_OWN_SECRET_BYTES: Final = 64


class CaptureLogins:
    def __init__(self, image: MetadataImage, keys: ClusterKeys, random: Random) -> None:
        self._image = image
        self._keys = keys
        self._random = random
        #: Drawn when it is needed first.
        self._own = b""

    def credentials(self, capture: str) -> KafkaLogin | None:
        """What the process of a capture logs in with; None: there is no such capture."""
        found = self._image.captures.get(capture)
        if found is None:
            return None
        return KafkaLogin(name=TRANSACTIONAL_PREFIX + capture, password=self._password(found))

    def _password(self, capture: Capture) -> str:
        owner = owner_of(capture)
        words = (capture.name, capture.incarnation, owner.principal, owner.user)
        secret = self._keys.derived(_PURPOSE) or self._own_secret()
        return hmac.digest(secret, "\0".join(words).encode(), "sha256").hex()

    def _own_secret(self) -> bytes:
        if not self._own:
            self._own = self._random.randbytes(_OWN_SECRET_BYTES)
        return self._own

    # ---- the side of the nodes

    def _capture(self, name: str) -> Capture | None:
        if not name.startswith(TRANSACTIONAL_PREFIX):
            return None
        return self._live(name.removeprefix(TRANSACTIONAL_PREFIX))

    def _live(self, name: str) -> Capture | None:
        """The capture of this name, unless what it runs as is gone."""
        capture = self._image.captures.get(name)
        if capture is None or objection_to_owner(self._image, owner_of(capture)):
            return None
        return capture

    def password(self, name: str) -> str | None:
        """The password of a process; None: the name belongs to no capture."""
        capture = self._capture(name)
        return None if capture is None else self._password(capture)

    def caller(self, name: str, host: str) -> Caller | None:
        """The caller that a process is; None: the name belongs to no capture."""
        capture = self._capture(name)
        if capture is None:
            return None
        return Caller(Principal(CAPTURE_KIND, capture.name), host, is_proven=True)

    def incarnation(self, caller: Caller) -> str:
        """Of a process that has logged in as this caller: what it is and runs as. Empty: it may run
        no more, or the caller is no process.
        """
        if caller.principal.kind != CAPTURE_KIND:
            return ""
        capture = self._live(caller.name)
        if capture is None:
            return ""
        owner = owner_of(capture)
        # Captures of earlier releases have no incarnation.
        return "\0".join((capture.incarnation, owner.principal, owner.user))
