"""The Unix sockets in a data directory: the administrator of the machine reaches the node by
`admin.sock`, and the process of its console by `console.sock`.

Clients of the first are super users, and those of the second say which browser they ask for. So
both are only for the user that the node runs as: their mode is 0600, and the kernel is asked for
the user of each connection. The administrator's way in needs no credential, and therefore also
serves one who has lost theirs.

The data directory is locked by the node that binds the socket, so a socket that is there already
belongs to a node that was killed. Addresses of Unix sockets have at most 108 bytes; a longer path
is reached through the directory's descriptor, by `/proc/self/fd`, or, on systems without that,
through a symbolic link in a directory that only the user may enter.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from struct import Struct
from typing import Final

from dragoman.errors import ConfigError

NAME: Final = "admin.sock"
CONSOLE_NAME: Final = "console.sock"
#: The longest address of a Unix socket, with its terminating zero; BSD and macOS have 104.
_ADDRESS_BYTES_MAX: Final = 108 if sys.platform == "linux" else 104
#: Linux alone has directories among these.
_DESCRIPTORS: Final = "/proc/self/fd"
#: Elsewhere, macOS makes temporary files below a path that is long itself.
_SHORT_DIRECTORY: Final = "/tmp"
_MODE: Final = 0o600
#: Linux: process, user and group of the other side.
_CREDENTIALS: Final = Struct("3i")
#: BSD and macOS: version and user, followed by groups.
_BSD_LEVEL: Final = 0
_BSD_PEER_CREDENTIALS: Final = 1
_BSD_CREDENTIALS: Final = Struct("II")
_BSD_CREDENTIALS_BYTES: Final = 76


class OperatorSocket:
    """A bound socket, which accepts connections once it is started."""

    def __init__(self, path: str, server: asyncio.Server) -> None:
        self._path = path
        self._server = server
        self._bound = os.lstat(self._path)

    async def serve(self) -> None:
        await self._server.start_serving()

    def close(self) -> None:
        """Stop accepting, and remove the socket, unless another one has taken its place."""
        self._server.close()
        try:
            if os.path.samestat(os.lstat(self._path), self._bound):
                os.unlink(self._path)
        except OSError:
            # The directory may be gone, or read-only by now.
            return


async def open_operator_socket(
    directory: str,
    loop: asyncio.AbstractEventLoop,
    make_protocol: Callable[[], asyncio.BaseProtocol],
    backlog: int,
    name: str = NAME,
) -> OperatorSocket:
    """Raises `ConfigError` when the socket cannot be bound."""
    bound = _bind(directory, name)
    server = await loop.create_unix_server(
        make_protocol, sock=bound, backlog=backlog, start_serving=False
    )
    return OperatorSocket(os.path.join(directory, name), server)


def connect(directory: str, timeout_s: float) -> socket.socket:
    """A connection to the node of a data directory. Raises `OSError`."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(timeout_s)
    try:
        with socket_address(directory) as address:
            connected.connect(address)
    except BaseException:
        connected.close()
        raise
    return connected


def user_of(transport: asyncio.BaseTransport) -> int | None:
    """The user id of the other side of a Unix socket; None where the system does not say."""
    connected: socket.socket = transport.get_extra_info("socket")
    option: int | None = getattr(socket, "SO_PEERCRED", None)
    try:
        if option is not None:
            data = connected.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
            _, user, _ = _CREDENTIALS.unpack(data)
        else:
            data = connected.getsockopt(_BSD_LEVEL, _BSD_PEER_CREDENTIALS, _BSD_CREDENTIALS_BYTES)
            _, user = _BSD_CREDENTIALS.unpack_from(data)
    except OSError:
        return None
    return int(user)


def _bind(directory: str, name: str) -> socket.socket:
    path = os.path.join(directory, name)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        # On Linux, the file inherits this mode. Elsewhere it is changed afterwards; the kernel's
        # word on who connects counts in any case.
        with suppress(OSError):
            os.fchmod(bound.fileno(), _MODE)
        with socket_address(directory, name) as address:
            bound.bind(address)
        os.chmod(path, _MODE)
    except OSError as error:
        bound.close()
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except BaseException:
        bound.close()
        raise
    return bound


def _remove_stale(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"{path} is not a socket; remove it, the node needs the name")
    os.unlink(path)


@contextmanager
def socket_address(directory: str, name: str = NAME) -> Iterator[str]:
    """The address of a socket, in a form that the system accepts."""
    path = os.path.join(directory, name)
    if len(os.fsencode(path)) < _ADDRESS_BYTES_MAX:
        yield path
        return
    if os.path.isdir(_DESCRIPTORS):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"{_DESCRIPTORS}/{descriptor}/{name}"
        finally:
            os.close(descriptor)
        return
    # Imported here: few systems and paths need it.
    import tempfile

    with tempfile.TemporaryDirectory(prefix="dragoman-", dir=_SHORT_DIRECTORY) as short:
        link = os.path.join(short, "data")
        os.symlink(os.path.abspath(directory), link)
        yield os.path.join(link, name)
