"""Certificates of nodes and clients, and the authorities that both sides trust."""

from __future__ import annotations

from pathlib import Path

from dragoman.certificates import Authority, write_pair
from dragoman.client.mlog import TlsSettings

#: The name in the certificate of the minibroker client.
CERTIFIED = "minibroker-shop"


class Certificates:
    """Files at places that stay, while what is in them is replaced."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700)
        self.authority = Authority.create("first")
        self.trusted = root / "trusted.pem"
        self.trust(self.authority)

    def trust(self, *authorities: Authority) -> None:
        """Nodes and clients trust these from now on."""
        aside = self._root / "trusted.new"
        aside.write_bytes(b"".join(each.pair.certificate for each in authorities))
        aside.replace(self.trusted)

    def of_node(self, node: int) -> tuple[str, str]:
        """Issue a node's certificate. Returns the paths of certificate and key."""
        pair = self.authority.server(["localhost", "127.0.0.1", f"dragoman://node/{node}"])
        return write_pair(str(self._root), f"node-{node}", pair)

    def of_client(self, name: str, authority: Authority | None = None) -> TlsSettings:
        """Issue a client's certificate; what it is given stays as it is."""
        signing = authority or self.authority
        pair = signing.client(name)
        number = len(list(self._root.glob(f"{name}-*.pem")))
        certificate, key = write_pair(str(self._root), f"{name}-{number}", pair)
        return TlsSettings(ca=str(self.trusted), certificate=certificate, key=key)

    def stranger(self, node: int, authority: Authority) -> Path:
        """Certificate and key, in one file, of someone who says to be that node."""
        pair = authority.server(["127.0.0.1", f"dragoman://node/{node}"])
        path = self._root / f"stranger-{node}-{len(list(self._root.iterdir()))}.pem"
        path.touch(mode=0o600)
        path.write_bytes(pair.certificate + pair.key)
        return path

    def as_one_file(self, settings: TlsSettings) -> Path:
        path = Path(settings.certificate).with_suffix(".both.pem")
        path.touch(mode=0o600)
        path.write_bytes(Path(settings.certificate).read_bytes() + Path(settings.key).read_bytes())
        return path

    @property
    def without_certificate(self) -> TlsSettings:
        return TlsSettings(ca=str(self.trusted))
