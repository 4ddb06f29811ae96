"""The frame layer of the client protocol: finding the end of a message, reading its frames, building responses.

A message is a sequence of frames up to one flagged final. A frame is an int32 length (which includes its own 6 header
bytes), a uint16 of flags and a payload. Integers of this layer are little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from holdfast.errors import ProtocolError, TooLarge

BEGIN_FRAGMENT = 0x8000
END_FRAGMENT = 0x4000
UNFRAGMENTED = BEGIN_FRAGMENT | END_FRAGMENT
IS_FINAL = 0x2000
BEGIN_STRUCTURE = 0x1000
END_STRUCTURE = 0x0800
IS_NULL = 0x0400
IS_EVENT = 0x0200
IS_BACKUP_EVENT = 0x0080

HEADER_BYTES = 6
FIRST_REQUEST_FRAME_BYTES = HEADER_BYTES + 16
"""The shortest first frame of a request: type, correlation id, partition id."""
FIRST_FRAGMENT_FRAME_BYTES = HEADER_BYTES + 8
"""The shortest first frame of a fragment: the number of its request."""

FRAME = Struct("<iH")
REQUEST = Struct("<iHiqi")
RESPONSE = Struct("<iHiqB")
EVENT = Struct("<iHiqi")
INT = Struct("<i")
LONG = Struct("<q")
UUID = Struct("<?QQ")

BEGIN = FRAME.pack(HEADER_BYTES, BEGIN_STRUCTURE)
END = FRAME.pack(HEADER_BYTES, END_STRUCTURE)
NULL = FRAME.pack(HEADER_BYTES, IS_NULL)
NO_UUID = UUID.pack(True, 0, 0)
NO_HASH = bytes(4)
"""The partition-hash word of `Data` without one."""


FRAMES_PER_LOOK = 8192
"""Frames that one look steps over: some ms without the compiled data lane."""


class Scan:
    """Progress of the search for the end of a message, so that bytes that trickle in are looked at once.

    Positions count from the beginning of the first data; `base` is the beginning of later pieces. `end` is the end of
    the message, or -1 while it is unknown. Then either `need` bytes must be there before the next look, or there were
    too many frames for one look (`tired`): a message of 16 MB can have 2.6 million frames, which take a second.
    """

    __slots__ = ("_final", "at", "end", "last", "need", "start", "tired")

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, start: int) -> None:
        """Look for the end of the message that begins at `start`."""
        self.start = start
        self.at = start
        """Beginning of the next frame, as far as known."""
        self.last = start
        """Beginning of the frame before."""
        self._final = False
        self.end = -1
        self.need = start + HEADER_BYTES
        self.tired = False

    def look(self, data: bytes | bytearray, limit: int, base: int = 0) -> int:
        """Returns `end`, also when called again. Raises ProtocolError for an impossible frame, TooLarge for a message
        above `limit` bytes.
        """
        if self.end >= 0:
            return self.end
        available = base + len(data)
        at, start = self.at, self.start
        self.tired = False
        for _ in range(FRAMES_PER_LOOK):
            if self._final:
                self.need = at
                self.end = at if available >= at else -1
                return self.end
            self.need = at + HEADER_BYTES
            if available < self.need:
                return -1
            length: int
            length, flags = FRAME.unpack_from(data, at - base)
            if length < HEADER_BYTES:
                raise ProtocolError(f"a frame of {length} bytes cannot be")
            if at == start:
                check_first_frame(length, flags)
            if at + length - start > limit:
                self.need = start + FIRST_REQUEST_FRAME_BYTES
                if available < self.need:
                    return (
                        -1
                    )  # The number of the request is not known yet, so an error could not be answered.
                raise TooLarge(f"the message is larger than the limit of {limit} bytes")
            self.last = at
            self.at = at = at + length
            self._final = bool(flags & IS_FINAL)
        self.tired = True
        return -1

    def move(self, by: int) -> None:
        """Shift all positions down by so many bytes."""
        self.start -= by
        self.at -= by
        self.last -= by
        self.need -= by
        if self.end >= 0:
            self.end -= by


def messages_in(data: bytes) -> Iterator[bytes]:
    """The messages in whole, trusted bytes."""
    start = at = 0
    while at < len(data):
        length, flags = FRAME.unpack_from(data, at)
        at += length
        if flags & IS_FINAL:
            yield data[start:at]
            start = at


class Skip:
    """Skips the rest of a message, frame by frame, as it arrives."""

    __slots__ = ("_head", "_last", "_left", "at")

    def __init__(self) -> None:
        self.at = 0
        """Position in the data where it stopped to let others run (-1 was returned)."""
        self._head = b""
        """The beginning of a frame's header."""
        self._left = 0
        """Bytes of the present frame that are still to come."""
        self._last = False
        """Whether the message ends with it."""

    def over(self, data: bytes, at: int) -> int:
        """The end of the message in the data, or -1; then `at` is below the end of the data if there were too many
        frames for one look. Raises ProtocolError for an impossible frame.
        """
        self.at = len(data)
        for _ in range(FRAMES_PER_LOOK):
            step = min(self._left, len(data) - at)
            at += step
            self._left -= step
            if self._left:
                return -1
            if self._last:
                return at
            piece = data[at : at + HEADER_BYTES - len(self._head)]
            at += len(piece)
            self._head += piece
            if len(self._head) < HEADER_BYTES:
                return -1
            length, flags = FRAME.unpack(self._head)
            if length < HEADER_BYTES:
                raise ProtocolError(f"a frame of {length} bytes cannot be")
            self._head = b""
            self._left = length - HEADER_BYTES
            self._last = bool(flags & IS_FINAL)
        self.at = at
        return -1


def check_first_frame(length: int, flags: int) -> None:
    """Raises ProtocolError unless a request, or a fragment of one, can begin with such a frame."""
    if flags & UNFRAGMENTED != UNFRAGMENTED:
        if length < FIRST_FRAGMENT_FRAME_BYTES or flags & IS_FINAL:
            raise ProtocolError("a fragment begins with its number, and has something in it")
    elif length < FIRST_REQUEST_FRAME_BYTES:
        raise ProtocolError(
            f"the first frame of a request has at least {FIRST_REQUEST_FRAME_BYTES} bytes, not {length}"
        )


UNITS_PER_SLICE = 2000
"""Units that are read in one slice: a frame is a unit, and so are `BYTES_PER_UNIT` of its payload. Some ms."""
UNITS_MAX = 16_000
"""Limit of units for what cannot be read in slices."""
BYTES_PER_UNIT = 4096
MANY_BYTES = 1 << 20
"""A list in a message of this size or more may have very many elements."""


class FrameReader:
    """The frames of one complete message, front to back.

    It counts what it has read. Readers of lists check `due` at each element, and let others run if it is True. Other
    reads are bounded: above `UNITS_MAX` the request is rejected.
    """

    __slots__ = ("_at", "_data", "_end", "_units", "many")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.many = end - at >= MANY_BYTES
        """Whether a list may have very many elements."""
        self._data = data
        self._at = at
        self._end = end
        self._units = 0

    def next(self) -> tuple[int, bytes]:
        """Flags and payload of the next frame. Raises ProtocolError after the last, TooLarge after too many."""
        if self._at >= self._end:
            raise ProtocolError("the message has fewer parameters than its type asks for")
        length, flags = FRAME.unpack_from(self._data, self._at)
        start = self._at + HEADER_BYTES
        self._at += length
        self._units += 1 + length // BYTES_PER_UNIT
        if self._units > UNITS_MAX and length < BYTES_PER_UNIT:
            raise TooLarge(f"one parameter of the request has more than {UNITS_MAX} frames")
        return flags, self._data[start : self._at]

    def due(self) -> bool:
        """Whether others should run now; resets the count."""
        if self._units < UNITS_PER_SLICE:
            return False
        self._units = 0
        return True

    def begin(self) -> None:
        """Step over the frame that begins a list or a structure."""
        flags, _ = self.next()
        if not flags & BEGIN_STRUCTURE:
            raise ProtocolError("a list or structure was expected")

    def at_end(self) -> bool:
        """Whether the next frame ends the list; if so, step over it."""
        if self._at >= self._end:
            raise ProtocolError("a list or structure has no end")
        flags = FRAME.unpack_from(self._data, self._at)[1]
        if flags & END_STRUCTURE:
            self._at += HEADER_BYTES
            return True
        return False

    def elements(self) -> Iterator[None]:
        """Yields once for each element of a list; the caller reads it."""
        self.begin()
        while not self.at_end():
            yield

    def skip_to_end(self) -> None:
        """Step over fields that newer clients may have added to a structure, and over its end."""
        depth = 1
        while depth:
            flags, _ = self.next()
            if flags & BEGIN_STRUCTURE:
                depth += 1
            elif flags & END_STRUCTURE:
                depth -= 1


# -- building
# ---------------------------------------------------------------------------------------------------------


def response(kind: int, correlation: int, fixed: bytes = b"") -> bytes:
    """The first frame of a response; `fixed` are its fixed-size parameters, packed."""
    return RESPONSE.pack(RESPONSE.size + len(fixed), UNFRAGMENTED, kind, correlation, 0) + fixed


def event(kind: int, correlation: int, fixed: bytes, partition: int = 0) -> bytes:
    """The first frame of an event; `correlation` is that of the request that registered the listener.

    Java clients deliver events of the same `partition` to listeners in order, and events without one (-1) in any order.
    So events that belong together have the same.
    """
    return EVENT.pack(EVENT.size + len(fixed), UNFRAGMENTED | IS_EVENT, kind, correlation, partition) + fixed


def backup_event(kind: int, correlation: int, source: int) -> bytes:
    """The only frame of the event by which a backup acknowledges the writes of the request `source`."""
    return EVENT.pack(
        EVENT.size + LONG.size, UNFRAGMENTED | IS_BACKUP_EVENT, kind, correlation, -1
    ) + LONG.pack(source)


def expecting(answer: bytes, acks: int) -> bytes:
    """The same response for a client that waits for so many backups itself."""
    at = RESPONSE.size - 1
    return b"".join((answer[:at], bytes((acks,)), answer[at + 1 :]))


def message(frames: list[bytes]) -> bytes:
    """Frames joined into a message: the last one is flagged final."""
    last = frames[-1]
    final = (FRAME.unpack_from(last)[1] | IS_FINAL).to_bytes(2, "little")
    return b"".join((*frames[:-1], last[:4], final, last[HEADER_BYTES:]))


def frame(payload: bytes) -> bytes:
    return FRAME.pack(HEADER_BYTES + len(payload), 0) + payload


def text(value: str | None) -> bytes:
    return NULL if value is None else frame(value.encode())


def data(value: bytes | None, key_hash: int = 0) -> bytes:
    """Stored bytes as `Data`: with the partition-hash word in front (big-endian, 0 if there is none)."""
    if value is None:
        return NULL
    # Old files may have invalid hash words: send the bits that fit.
    word = (key_hash & 0xFFFF_FFFF).to_bytes(4, "big") if key_hash else NO_HASH
    return FRAME.pack(HEADER_BYTES + 4 + len(value), 0) + word + value


def uuid(value: str | None) -> bytes:
    """A UUID (17 bytes: null flag, most and least significant half), from its text."""
    if value is None:
        return NO_UUID
    number = int(value.replace("-", ""), 16)
    return UUID.pack(False, number >> 64, number & 0xFFFF_FFFF_FFFF_FFFF)
