"""The one exception hierarchy.

    DragomanError
      ProtocolError
        LocalProtocolError      we used a codec or connection wrongly
        RemoteProtocolError     the peer sent something its protocol forbids
          DecodeError           bytes that do not parse
            OversizedBatchError   a compressed batch that expands to more than a reader takes
        EncodeError             a value the wire cannot express
      LogError
        CorruptionError         bytes that were durable are not what was written
        DirectoryInUseError     another process holds the data directory
        FormatError             the data directory is newer than this release understands
        DiskFullError           no space: the write was refused, nothing changed
        LogStoppedError         a sync failed earlier: this log takes no more writes
        OffsetOutOfRangeError   no such offset in this partition
        OffsetGapError          a batch to be placed as it is does not follow the log's end
      BrokerError               a request the broker refuses; reasons are in broker/errors.py
      ClusterError
        NotSentError            another node never got the request
        NotControllerError      another node takes changes of the metadata, or none does
        VersionConflictError    the metadata is not what the change was made for
        OutcomeUnknownError     the change may or may not have happened, or still happen
      AuthError
        AuthenticationFailedError a login was refused; the text never says which part was wrong
          LoginsOverloadedError   too many logins wait: nothing was examined, a retry may succeed
        InvalidPasswordError    a password from which no verifier can be made
        TokenKeysError          the keys that verify tokens cannot be fetched, or are none
      ConfigError
        SecretError             a secret of the cluster or of this node cannot be sealed or read
      CdcError

Every class has a stable `code`, which logs, metrics and the HTTP API show and programs may match:
its name in small letters without `Error`, unless the class states another. Protocol folders map
these classes to their own wire numbers.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

#: What `msgspec` raises for bytes that are no value of the expected type. Its own error is not all:
#: a text may be no UTF-8, and an unknown field may be nested too deeply.
MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class DragomanError(Exception):
    """Root of everything this package raises on purpose."""

    code = "error"

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls):
            name = cls.__name__.removesuffix("Error")
            cls.code = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class ProtocolError(DragomanError): ...


class LocalProtocolError(ProtocolError): ...


class RemoteProtocolError(ProtocolError): ...


class DecodeError(RemoteProtocolError): ...


class OversizedBatchError(DecodeError): ...


class EncodeError(LocalProtocolError): ...


class LogError(DragomanError): ...


class CorruptionError(LogError):
    """Bytes that were durable are wrong. `path` and `position` name the first bad byte known."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class DirectoryInUseError(LogError): ...


class FormatError(LogError): ...


class DiskFullError(LogError): ...


class LogStoppedError(LogError): ...


class OffsetOutOfRangeError(LogError): ...


class OffsetGapError(LogError): ...


class BrokerError(DragomanError): ...


class ClusterError(DragomanError): ...


class NotSentError(ClusterError):
    """The request was never sent to the other node."""


class NotControllerError(ClusterError):
    """`leader` is the node that accepts changes; -1 when it is unknown."""

    def __init__(self, leader: int) -> None:
        where = f"node {leader} does" if leader >= 0 else "no node does at the moment"
        super().__init__(f"this node does not lead the metadata quorum: {where}")
        self.leader = leader


class VersionConflictError(ClusterError): ...


class OutcomeUnknownError(ClusterError): ...


class AuthError(DragomanError): ...


class AuthenticationFailedError(AuthError): ...


class LoginsOverloadedError(AuthenticationFailedError): ...


class InvalidPasswordError(AuthError): ...


class TokenKeysError(AuthError): ...


class ConfigError(DragomanError): ...


class SecretError(ConfigError):
    """The text never has a secret."""


class CdcError(DragomanError): ...
