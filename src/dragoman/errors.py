"""The one exception hierarchy.

    DragomanError
      ProtocolError
        LocalProtocolError      we used a codec or connection wrongly
        RemoteProtocolError     the peer sent something its protocol forbids
          DecodeError           bytes that do not parse
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
      AuthError
      ConfigError
      CdcError

Every class has a stable `code`: a short lower-case word that logs, metrics and the HTTP API show
and that programs may match on. Protocol folders map these classes to their own wire numbers.
"""

from __future__ import annotations


class DragomanError(Exception):
    """Root of everything this package raises on purpose."""

    code = "error"


class ProtocolError(DragomanError):
    code = "protocol"


class LocalProtocolError(ProtocolError):
    code = "local_protocol"


class RemoteProtocolError(ProtocolError):
    code = "remote_protocol"


class DecodeError(RemoteProtocolError):
    code = "decode"


class EncodeError(LocalProtocolError):
    code = "encode"


class LogError(DragomanError):
    code = "log"


class CorruptionError(LogError):
    """Bytes that were durable are wrong. `path` and `position` name the first bad byte known."""

    code = "corruption"

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class DirectoryInUseError(LogError):
    code = "directory_in_use"


class FormatError(LogError):
    code = "format"


class DiskFullError(LogError):
    code = "disk_full"


class LogStoppedError(LogError):
    code = "log_stopped"


class OffsetOutOfRangeError(LogError):
    code = "offset_out_of_range"


class OffsetGapError(LogError):
    code = "offset_gap"


class BrokerError(DragomanError):
    code = "broker"


class ClusterError(DragomanError):
    code = "cluster"


class AuthError(DragomanError):
    code = "auth"


class ConfigError(DragomanError):
    code = "config"


class CdcError(DragomanError):
    code = "cdc"
