"""Decoders for messages of members: authentication, members, owners, errors and answers."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any

from holdfast.client_core.request_forms import LAST_VALUE, WHOLE, RequestForm
from holdfast.errors import (
    Denied,
    HoldfastError,
    NoDataMember,
    NoMemory,
    ProcessorFailed,
    ProtocolError,
    Refused,
    RequestError,
    RolledBack,
    Unknown,
    Unsupported,
)
from holdfast.wire.hazelcast.hazelcast_frames import (
    END_STRUCTURE,
    FRAME,
    INT,
    IS_NULL,
    LONG,
    RESPONSE,
    UUID,
    FrameReader,
)

NOT_APPLIED = frozenset({8, 19, 39, 46, 53, 62, 82})
"""The request was not carried out, so any request is retried. Holdfast sends 46 and 39."""
MAYBE_APPLIED = frozenset({33, 47, 50, 52, 90})
"""Errors between members after which a request may have been applied, so only reads are retried."""
CLIENT_DOOR = 1

_WELCOME = Struct("<B17sBi17s")
_REFUSED: dict[int, type[Refused]] = {
    3: Denied,
    18: ProcessorFailed,
    21: Refused,
    23: Refused,
    26: Refused,
    27: Refused,
    43: NoMemory,
    51: Refused,
    56: RolledBack,
    57: RolledBack,
    58: RolledBack,
    61: Unsupported,
    67: NoDataMember,
}


@dataclass(frozen=True, slots=True)
class Welcome:
    status: int
    member: bytes
    partitions: int
    cluster: bytes


def reader_of(whole: bytes) -> FrameReader:
    return FrameReader(whole, FRAME.unpack_from(whole)[0], len(whole))


def fixed_part(whole: bytes, at: int, layout: Struct) -> tuple[int, ...]:
    """Raises ProtocolError when the first frame is too short."""
    if FRAME.unpack_from(whole)[0] < at + layout.size:
        raise ProtocolError("the message has fewer parameters than its type asks for")
    return layout.unpack_from(whole, at)


def read_welcome(whole: bytes) -> Welcome:
    if FRAME.unpack_from(whole)[0] < RESPONSE.size + _WELCOME.size:
        raise ProtocolError("the answer to the authentication is too short")
    status, member, _, partitions, cluster = _WELCOME.unpack_from(whole, RESPONSE.size)
    return Welcome(status, member, partitions, cluster)


def _text(frames: FrameReader) -> str:
    flags, payload = frames.next()
    if flags & IS_NULL:
        return ""
    try:
        return payload.decode()
    except UnicodeDecodeError as broken:
        raise ProtocolError("a text is not valid UTF-8") from broken


def _number(frames: FrameReader) -> int:
    payload = frames.next()[1]
    if len(payload) < INT.size:
        raise ProtocolError("a number is cut short")
    return int(INT.unpack_from(payload)[0])


def _address(frames: FrameReader) -> tuple[str, int]:
    frames.begin()
    port = _number(frames)
    host = _text(frames)
    frames.skip_to_end()
    return host, port


def read_members(frames: FrameReader) -> dict[bytes, tuple[str, int]]:
    """Addresses of the client ports of all members, by UUID, oldest first. Raises ProtocolError."""
    found: dict[bytes, tuple[str, int]] = {}
    for _ in frames.elements():
        frames.begin()
        fixed = frames.next()[1]
        if len(fixed) < UUID.size:
            raise ProtocolError("a member without a UUID")
        address = _address(frames)
        frames.begin()
        frames.skip_to_end()  # attributes
        frames.begin()
        frames.skip_to_end()  # version
        for _door in frames.elements():
            frames.begin()
            kind = _number(frames)
            identifier = _text(frames)
            frames.skip_to_end()
            door = _address(frames)
            if kind == CLIENT_DOOR and not identifier:
                address = door
        frames.skip_to_end()
        found[fixed[: UUID.size]] = address
    return found


def read_owners(frames: FrameReader, partitions: int) -> list[bytes]:
    """Empty for a partition without an owner. Raises ProtocolError."""
    frames.begin()
    lists: list[bytes] = []
    while True:
        flags, payload = frames.next()
        if flags & END_STRUCTURE:
            break
        lists.append(payload)
    uuids = frames.next()[1]
    if len(uuids) != UUID.size * len(lists):
        raise ProtocolError("owners and their partitions differ in number")
    owners = [b""] * partitions
    for place, payload in enumerate(lists):
        if len(payload) % INT.size:
            raise ProtocolError("a list of partitions is cut short")
        for (partition,) in INT.iter_unpack(payload):
            if not 0 <= partition < partitions:
                raise ProtocolError(f"partition {partition} of {partitions} cannot be")
            owners[partition] = uuids[place * UUID.size : (place + 1) * UUID.size]
    return owners


def read_error(whole: bytes) -> tuple[int, str]:
    """Number and text of the outermost error. Raises ProtocolError."""
    frames = reader_of(whole)
    frames.begin()
    frames.begin()
    number = _number(frames)
    name = _text(frames)
    return number, _text(frames) or name


def error_of(number: int, reason: str) -> RequestError:
    """For an error that is not retried: Unknown, unless the number says that nothing was applied."""
    kind = _REFUSED.get(number, Unknown)
    return kind(f"{reason} (error {number} of the protocol)")


class NotAnswered(HoldfastError):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} (error {code} of the protocol)")
        self.code = code
        self.reason = reason


def answer_in(form: RequestForm, whole: bytes) -> Any:
    """Raises NotAnswered, ProtocolError."""
    kind = INT.unpack_from(whole, FRAME.size)[0]
    if kind == form.kind + 1:
        if form.code == WHOLE:
            return whole
        return value_or_none(whole) if form.code <= LAST_VALUE else truth(whole)
    if kind:
        raise ProtocolError("the response has an unexpected type")
    raise NotAnswered(*read_error(whole))


# -- forms of answers


def truth(whole: bytes) -> bool:
    """False if the answer has no parameters."""
    return FRAME.unpack_from(whole)[0] > RESPONSE.size and bool(whole[RESPONSE.size])


def count_in(whole: bytes) -> int:
    return fixed_part(whole, RESPONSE.size, INT)[0]


def uuid_in(whole: bytes) -> bytes:
    fixed_part(whole, RESPONSE.size, UUID)
    return whole[RESPONSE.size : RESPONSE.size + UUID.size]


def value_or_none(whole: bytes) -> bytes | None:
    """Raises ProtocolError."""
    at = FRAME.unpack_from(whole)[0]
    if at >= len(whole):
        raise ProtocolError("the answer has no value")
    length, flags = FRAME.unpack_from(whole, at)
    if flags & IS_NULL:
        return None
    if length < FRAME.size + LONG.size:
        raise ProtocolError("a value is cut short")
    return whole[at + 10 : at + length]


def values(whole: bytes) -> list[bytes]:
    """A list of stored values, or of keys and values in turn. Raises ProtocolError."""
    reader_of(whole).begin()
    at, size, frame = FRAME.unpack_from(whole)[0] + FRAME.size, len(whole), FRAME.unpack_from
    found: list[bytes] = []
    while at < size:
        length, flags = frame(whole, at)
        if flags & END_STRUCTURE:
            return found
        if length < FRAME.size + LONG.size:
            raise ProtocolError("a value is cut short")
        found.append(whole[at + 10 : at + length])
        at += length
    raise ProtocolError("a list has no end")


def pairs(whole: bytes) -> list[bytes]:
    """Keys and values in turn. Raises ProtocolError."""
    found = values(whole)
    if len(found) % 2:
        raise ProtocolError("a key without a value")
    return found
