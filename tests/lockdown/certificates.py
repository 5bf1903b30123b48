"""Certificates of nodes and clients, made by `dragoman tls dev`, and the authorities trusted."""

from __future__ import annotations

import shutil
from pathlib import Path

from dragoman.certificates import AUTHORITY_FILE, Authority, authority_in
from dragoman.client.mlog import TlsSettings
from lockdown.operator import Operator

#: The name in the certificate of the minibroker client.
CERTIFIED = "minibroker-shop"


class Certificates:
    """Files at places that stay, while what is in them is replaced."""

    def __init__(self, root: Path, operator: Operator) -> None:
        self._root = root
        self._operator = operator
        self._number = 0
        root.mkdir(mode=0o700)
        self.trusted = root / "trusted.pem"
        self.authority = self.new_authority()
        self.trust(self.authority)

    def new_authority(self) -> Path:
        """The directory of a new authority."""
        self._number += 1
        directory = self._root / f"authority-{self._number}"
        self._operator.types("tls", "dev", str(directory))
        return directory

    def trust(self, *authorities: Path) -> None:
        """Nodes and clients trust these from now on."""
        aside = self._root / "trusted.new"
        aside.write_bytes(b"".join((each / AUTHORITY_FILE).read_bytes() for each in authorities))
        aside.replace(self.trusted)

    def of_node(self, node: int) -> tuple[str, str]:
        """Issue a node's certificate. Returns the paths of certificate and key."""
        words = ("--name", "127.0.0.1", "--name", f"dragoman://node/{node}")
        self._operator.types("tls", "dev", str(self.authority), *words)
        return self._placed(self.authority, "server", f"node-{node}")

    def of_client(self, name: str, authority: Path | None = None) -> TlsSettings:
        """Issue a client's certificate, beside earlier ones."""
        signing = authority or self.authority
        self._operator.types("tls", "dev", str(signing), "--client", name)
        self._number += 1
        certificate, key = self._placed(signing, name, f"{name}-{self._number}")
        return TlsSettings(ca=str(self.trusted), certificate=certificate, key=key)

    def _placed(self, directory: Path, name: str, wanted: str) -> tuple[str, str]:
        """Copy a pair to where a node or client has it."""
        paths = []
        for suffix in (".pem", "-key.pem"):
            aside, place = self._root / f"{wanted}.new", self._root / f"{wanted}{suffix}"
            shutil.copy(directory / f"{name}{suffix}", aside)
            aside.replace(place)
            paths.append(str(place))
        return paths[0], paths[1]

    def stranger(self, node: int, authority: Authority | Path) -> Path:
        """Certificate and key, in one file, of someone who says to be that node."""
        signing = authority if isinstance(authority, Authority) else authority_in(str(authority))
        pair = signing.server(["127.0.0.1", f"dragoman://node/{node}"])
        return self._one_file(pair.certificate + pair.key)

    def as_one_file(self, settings: TlsSettings) -> Path:
        files = (Path(settings.certificate), Path(settings.key))
        return self._one_file(b"".join(each.read_bytes() for each in files))

    def _one_file(self, data: bytes) -> Path:
        self._number += 1
        path = self._root / f"pair-{self._number}.pem"
        path.touch(mode=0o600)
        path.write_bytes(data)
        return path

    @property
    def without_certificate(self) -> TlsSettings:
        return TlsSettings(ca=str(self.trusted))
