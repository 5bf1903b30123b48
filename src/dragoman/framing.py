"""Cuts a byte stream into frames without copying large ones.

A frame is a size in four bytes, big-endian, which excludes itself, and that many bytes. Some
protocols put a few bytes, the *lead*, before the size: they are handed out in front of the rest.
`FrameReader` has the shape of `asyncio.BufferedProtocol`: the transport asks for a buffer, reads
into it, and says how much it read.

Theory of operation. While no frame is open, the buffer is a scratch area that all readers of an
event loop share; that is safe because nothing else runs between `get_buffer` and `buffer_updated`.
Whole frames are copied out of it: they are small. A frame that the scratch area holds only in part
is *open*: it gets a buffer of its own, what there is of it is copied, and the transport fills the
rest directly. Of a size cut off in the middle, at most three bytes are kept and put in front of
the next read. (With a lead, it is the lead and the size that may be cut off.)

    scratch   | size frame | size frame | size fra        -> two frames out, the third is open
    open               | fra.................. |          <- the next reads go here

An idle connection therefore holds no buffer. An open frame holds what has arrived of it: its buffer
is enlarged when the transport is about to read, in proportion to what has come so far. What a peer
announces and does not send takes no memory. Every frame handed out is a bytearray of its own: the
receiver may keep and change it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from dragoman.errors import DecodeError
from dragoman.limits import (
    FRAME_GROWTH_BYTES_MAX,
    FRAME_GROWTH_BYTES_MIN,
    LARGE_FRAME_BYTES_MIN,
    SCRATCH_BYTES,
)
from dragoman.types import Buffer

_unpack_size: Final = Struct(">i").unpack_from
_SIZE_BYTES: Final = 4


class Scratch:
    """The receive buffer that the connections of one event loop share."""

    __slots__ = ("data", "view")

    def __init__(self, size: int = SCRATCH_BYTES) -> None:
        assert size > 4
        self.data = bytearray(size)
        self.view = memoryview(self.data)


class FrameReader:
    """Receives one connection's bytes. After a `DecodeError` it is of no more use: close."""

    __slots__ = ("_filled", "_frame", "_frame_size", "_lead", "_max", "_min", "_rest", "_scratch")

    def __init__(
        self,
        frame_bytes_max: int,
        scratch: Scratch,
        *,
        lead_bytes: int = 0,
        frame_bytes_min: int = 1,
    ) -> None:
        self._max = frame_bytes_max
        self._min = frame_bytes_min
        self._lead = lead_bytes
        self._scratch = scratch
        #: First bytes of a frame, when a read ended before the end of its size.
        self._rest = b""
        #: The open frame, grown as it fills; None between frames.
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._filled = 0

    def allow(self, frame_bytes_max: int) -> None:
        """Change the bound of frames that begin from now on."""
        self._max = frame_bytes_max

    @property
    def pending_bytes(self) -> int:
        """Memory that an unfinished frame holds at the moment; more than 0 while one is open."""
        return 0 if self._frame is None else len(self._frame) or 1

    @property
    def announced_bytes(self) -> int:
        """The size that an unfinished frame will have; 0 while none is open."""
        return 0 if self._frame is None else self._frame_size

    def forget(self) -> None:
        """Drop an unfinished frame, because the connection is gone."""
        self._frame = None
        self._rest = b""

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """The buffer for the next bytes; never empty. An open frame grows by no more than
        `size_hint`, unless that is -1.
        """
        if self._frame is not None:
            return self._rest_of_frame(self._frame, size_hint)
        kept = len(self._rest)
        if not kept:
            return self._scratch.view
        self._scratch.data[:kept] = self._rest
        return self._scratch.view[kept:]

    def buffer_updated(self, count: int) -> list[bytearray]:
        """`count` bytes were put into the buffer; the frames that are complete now, in order."""
        if self._frame is not None:
            return self._fill(self._frame, count)
        if self._rest:
            count += len(self._rest)
            self._rest = b""
        return self._cut(count)

    def receive(self, data: Buffer) -> list[bytearray]:
        """`buffer_updated` for bytes in another buffer, which are copied piece by piece."""
        frames: list[bytearray] = []
        view = memoryview(data)
        while view:
            buffer = self.get_buffer()
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            frames += self.buffer_updated(count)
            view = view[count:]
        return frames

    def _fill(self, frame: bytearray, count: int) -> list[bytearray]:
        self._filled += count
        if self._filled < self._frame_size:
            return []
        self._frame = None
        return [frame]

    def _cut(self, end: int) -> list[bytearray]:
        """Take all complete frames out of the scratch area, and open the incomplete one."""
        data = self._scratch.data
        lead, head = self._lead, self._lead + _SIZE_BYTES
        frames: list[bytearray] = []
        position = 0
        while position + head <= end:
            (size,) = _unpack_size(data, position + lead)
            if not self._min <= size <= self._max:
                raise DecodeError(f"frame of {size} bytes; {self._min} to {self._max} are allowed")
            start = position + head
            after = start + size
            if after > end:
                self._open(lead + size, data[position : position + lead] + data[start:end])
                return frames
            frame = data[start:after] if not lead else data[position:after]
            if lead:
                # The frame is copied once, together with its size, which is then removed.
                del frame[lead:head]
            frames.append(frame)
            position = after
        if position < end:
            self._rest = bytes(data[position:end])
        return frames

    def _open(self, size: int, start: bytearray) -> None:
        self._frame_size = size
        self._filled = len(start)
        self._frame = start

    def _rest_of_frame(self, frame: bytearray, growth_max: int) -> memoryview:
        # The frame grows only here, where no view of it is left: transports hold theirs until a
        # read has been reported, and a bytearray with a view on it cannot change its size.
        filled = self._filled
        if filled == len(frame):
            # Few steps keep the copies few; small ones at first keep memory near what has come.
            step = filled if filled < LARGE_FRAME_BYTES_MIN else 3 * filled
            step = min(max(step, FRAME_GROWTH_BYTES_MIN), FRAME_GROWTH_BYTES_MAX)
            if growth_max > 0:
                step = min(step, growth_max)
            more = bytes(min(self._frame_size - filled, step))
            try:
                frame.extend(more)
            except BufferError:
                frame = self._frame = frame + more
        return memoryview(frame)[filled:]
