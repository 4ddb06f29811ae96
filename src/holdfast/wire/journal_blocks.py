"""The bytes of a journal: segments of blocks, each block one group of entries, all of them one chain.

A segment `j<first lsn, 12 digits>.seg` begins with a header; blocks follow without a space between them. A block is a
head of fixed size and a MessagePack list of entries. What makes it believable:

- wire/B-1: Its *link* is a digest of its whole head, of its place in the file and of the segment's *seed*; the digest
  of its entries and the link of the block before are in the head. The link is verified before the length is used, so
  nothing follows a damaged length, and nothing is a block at a place where it was not written.
- wire/B-2: The seed is made of the store, the first lsn of the segment and the link before it. So bytes of another
  store, or of another use of the same file, are not blocks here, whatever they were there; and nobody outside can make
  any, not even inside a value, because the links are known to nobody outside.
- wire/B-3: `synced` says how far the journal was durable when this block was made. A block is *proved durable* when a
  later valid block or header says so. What cannot be read is damage when it is proved durable, and else a torn tail,
  which is cut. So a seal (an empty block) is written after the last block, to prove it.
- wire/B-4: After damage reading goes on at the next block that is valid by itself, and the damage is reported with it.

The digest is MurmurHash3, 128 bits: 8 GB/s a core, twice as fast as `zlib.crc32` on large blocks and on small ones.
Every step of it can be undone, so two texts that differ only within 16 aligned bytes never have the same digest: no
flipped bit, and no burst that stays there, goes unseen. Any other accident has a chance of 2**-128, where CRC-32 has
2**-32: too much for the torn blocks of many machines. It is no defence against somebody who may write to the directory.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from mmh3 import mmh3_x64_128_digest as digest

from holdfast.core.model.journal_entries import Entry
from holdfast.core.model.levels import HIGHEST, LOWEST, SEGMENT_FORMATS, segment_format
from holdfast.errors import JournalBroken, NewerFiles

MAGIC = b"HFJS"
FORMATS = frozenset(SEGMENT_FORMATS[level] for level in range(LOWEST, HIGHEST + 1))
"""The formats of segments that this Holdfast reads. They differ in the kinds of entries that blocks may have."""
ORIGIN = bytes(16)
"""The link before the first block of a store."""

_HEADER = struct.Struct("<4sHxxQQQ40s16s")
_HEAD = struct.Struct("<4sIQQ16s16s")
_PLACE = struct.Struct("<Q")
_LINK_BYTES = 16
HEADER_BYTES = _HEADER.size + _LINK_BYTES
"""Of a segment: where its first block begins."""
HEAD_BYTES = _HEAD.size + _LINK_BYTES
"""Of a block: what it costs beside its entries."""
SEAL_BYTES = HEAD_BYTES + 1
"""Of a block with an empty list of entries."""
BLOCK_BYTES_MAX = 0xFFFF_FFFF
STORE_BYTES_MAX = 40

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[list[Entry]] = msgspec.msgpack.Decoder(list[Entry])

# -- names ------------------------------------------------------------------------------------------------------------


def segment_name(first_lsn: int) -> str:
    """The name of the segment that begins with this block."""
    return f"j{first_lsn:012}.seg"


def segment_lsn(name: str) -> int | None:
    """The first lsn in the name of a segment; None when it is not the name of one."""
    digits = name[1:-4]
    if not (name.startswith("j") and name.endswith(".seg") and digits.isascii() and digits.isdigit()):
        return None
    lsn = int(digits) if len(digits) <= 20 else 0
    return lsn if lsn and segment_name(lsn) == name else None


def segments(names: Sequence[str]) -> list[str]:
    """Those of these names that are segments, in the order of the journal."""
    return sorted((name for name in names if segment_lsn(name)), key=lambda name: segment_lsn(name) or 0)


# -- writing ----------------------------------------------------------------------------------------------------------


def seed_of(store: str, first_lsn: int, previous: bytes) -> bytes:
    """What the links of a segment's blocks are made with; its first four bytes begin each block."""
    seed = digest(struct.pack("<40sQ16s", store.encode(), first_lsn, previous))
    return bytes([seed[0] | 0x80]) + seed[1:]


def segment_header(
    store: str, first_lsn: int, previous: bytes, synced: int, wall_ms: int, level: int = LOWEST
) -> bytes:
    """The first bytes of a segment.

    store: up to 40 bytes of text. previous: the link of the last block before, `ORIGIN` if there is none.
    synced: the journal is durable up to this lsn. wall_ms: milliseconds since 1970. level: the highest
    of what is to be written into it, which decides on its format.
    """
    name = store.encode()
    if not 0 < len(name) <= STORE_BYTES_MAX or b"\0" in name:
        raise ValueError(
            f"{store!r} cannot name a store: it has 1 to {STORE_BYTES_MAX} bytes, none of them 0"
        )
    if not 0 <= synced < first_lsn:
        raise ValueError(f"a segment from {first_lsn} on cannot say that {synced} is durable")
    fields = _HEADER.pack(MAGIC, segment_format(level), first_lsn, synced, wall_ms, name, previous)
    return fields + digest(fields)


def link_of(seed: bytes, offset: int, fields: bytes | memoryview) -> bytes:
    """The link of the block that begins at this place of its segment with these fields."""
    return digest(seed + _PLACE.pack(offset) + fields)


def encode_block(
    seed: bytes, offset: int, lsn: int, previous: bytes, synced: int, entries: Sequence[Entry]
) -> tuple[bytes, bytes]:
    """A block for this place of its segment, and its link, which is `previous` of the next. No entries: a seal."""
    buffer = bytearray(HEAD_BYTES)
    _encoder.encode_into(entries, buffer, HEAD_BYTES)
    length = len(buffer) - HEAD_BYTES
    if length > BLOCK_BYTES_MAX:
        raise ValueError(f"a block of {length} bytes; the most is {BLOCK_BYTES_MAX}")
    with memoryview(buffer) as view, view[HEAD_BYTES:] as body:
        head = _HEAD.pack(seed[:4], length, lsn, synced, previous, digest(body))
    link = link_of(seed, offset, head)
    buffer[:HEAD_BYTES] = head + link
    return bytes(buffer), link


@dataclass(frozen=True, slots=True)
class End:
    """Where a writer goes on: in a new segment with `Chain(store, end.lsn, end.checksum)`, always; or in the same one
    with `Chain.resume`, when that is `resumable`.
    """

    lsn: int
    """Of the next block."""
    checksum: bytes
    """The link of the last block."""
    segment: str = ""
    """The one in which the last block ends, and where; "" when there is none."""
    offset: int = 0
    first_lsn: int = 0
    seed: bytes = b""
    """b"" when the last segment must not be written to any more: it was torn or damaged."""

    @property
    def resumable(self) -> bool:
        """Whether the last segment ends with zeros only, so that it may be written on."""
        return bool(self.seed)


class Place(NamedTuple):
    """Where a writer is, all of it: what a block is made with."""

    lsn: int
    """Of the next block."""
    checksum: bytes
    """The link of the last block."""
    synced: int
    first_lsn: int
    """Of the segment that is written."""
    offset: int
    """Where the next block is to be written in it."""
    seed: bytes


class Chain:
    """A writer of a journal: makes one segment header or block after the other.

    A header must be durable before the first block of its segment is written. Blocks may be written before those before
    them are durable. Whoever goes on with a journal syncs what he has read of its last segment first.
    """

    __slots__ = ("place", "store")

    def __init__(self, store: str, lsn: int = 1, checksum: bytes = ORIGIN) -> None:
        """Begin with this block, in a new segment: call `begin` first. Everything before is durable, or void."""
        self.store = store
        self.place = Place(lsn, checksum, lsn - 1, lsn, 0, b"")
        """Keep it before `begin` or `block`, and put it back, when what they made is not written after all."""

    @classmethod
    def resume(cls, store: str, end: End) -> Chain:
        """Go on in the same segment, at `end.offset`. Only when `end.resumable`: nothing but zeros may be there."""
        assert end.resumable, end
        chain = cls(store)
        chain.place = Place(end.lsn, end.checksum, end.lsn - 1, end.first_lsn, end.offset, end.seed)
        return chain

    @property
    def lsn(self) -> int:
        """Of the next block."""
        return self.place.lsn

    @property
    def checksum(self) -> bytes:
        """The link of the last block."""
        return self.place.checksum

    @property
    def synced(self) -> int:
        """What the next block or header says of how far the journal is durable."""
        return self.place.synced

    @property
    def first_lsn(self) -> int:
        """Of the segment that is written."""
        return self.place.first_lsn

    @property
    def offset(self) -> int:
        """Where the next block is to be written in the segment."""
        return self.place.offset

    @property
    def seed(self) -> bytes:
        """Of the segment that is written."""
        return self.place.seed

    @property
    def segment(self) -> str:
        """The name of the segment that is written."""
        return segment_name(self.place.first_lsn)

    def begin(self, wall_ms: int, level: int = LOWEST) -> bytes:
        """Begin a new segment with the next block: its name is `segment` now. Answers its header.

        level: of all that is to be written into it.
        """
        lsn, checksum, synced = self.place[:3]
        self.place = Place(lsn, checksum, synced, lsn, HEADER_BYTES, seed_of(self.store, lsn, checksum))
        return segment_header(self.store, lsn, checksum, synced, wall_ms, level)

    def block(self, entries: Sequence[Entry] = ()) -> bytes:
        """The next block, to be written at `offset` as it is before this call, and nowhere else; no entries: a seal."""
        lsn, checksum, synced, first_lsn, offset, seed = self.place
        data, link = encode_block(seed, offset, lsn, checksum, synced, entries)
        self.place = Place(lsn + 1, link, synced, first_lsn, offset + len(data), seed)
        return data

    def durable(self, lsn: int) -> None:
        """Every block up to this one is durable: the next block or header says so."""
        if lsn > self.place.synced:
            self.place = self.place._replace(synced=lsn)


# -- reading: one header, one block -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of a segment says."""

    first_lsn: int
    synced: int
    wall_ms: int
    store: str
    previous: bytes
    format: int = 1


@dataclass(frozen=True, slots=True)
class Head:
    """A block that is valid by itself: where it is, and what its head says."""

    offset: int
    end: int
    lsn: int
    synced: int
    previous: bytes
    link: bytes


@dataclass(frozen=True, slots=True)
class Block:
    """One group of entries, as it was written."""

    lsn: int
    entries: list[Entry]
    segment: str
    offset: int
    size: int
    """Bytes, with the head."""


def read_header(data: bytes | memoryview) -> Header | None:
    """The header of a segment; None when these bytes do not begin with one.

    Raises NewerFiles when it is sound, but of a format that this one does not know.
    """
    if len(data) < HEADER_BYTES:
        return None
    fields = data[: _HEADER.size]
    magic, version, first_lsn, synced, wall_ms, store, previous = _HEADER.unpack(fields)
    if magic != MAGIC or digest(fields) != bytes(data[_HEADER.size : HEADER_BYTES]):
        return None
    if version not in FORMATS:
        raise NewerFiles(
            f"a segment of format {version}; this Holdfast reads formats {', '.join(map(str, sorted(FORMATS)))}: start "
            "the version that wrote it, or a newer one; nothing was changed"
        )
    try:
        name = store.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return None
    return Header(first_lsn, synced, wall_ms, name, previous, version) if synced < first_lsn else None


def head_at(data: memoryview, offset: int, seed: bytes, before: int = 0) -> Head | None:
    """The head that begins here, if there is one; its entries are not looked at.

    before: so many bytes of the segment are before these ones.
    """
    start = offset + _HEAD.size
    if start + _LINK_BYTES > len(data):
        return None
    fields = data[offset:start]
    mark, length, lsn, synced, previous, _ = _HEAD.unpack(fields)
    if mark != seed[:4]:
        return None
    link = bytes(data[start : start + _LINK_BYTES])
    if link_of(seed, before + offset, fields) != link or synced >= lsn:
        return None
    return Head(offset, start + _LINK_BYTES + length, lsn, synced, previous, link)


def is_sound(data: memoryview, head: Head) -> bool:
    """Whether the entries of this block are what was written."""
    if head.end > len(data):
        return False
    start = head.offset + _HEAD.size
    body = data[head.offset + HEAD_BYTES : head.end]
    return digest(body) == bytes(data[start - _LINK_BYTES : start])


def decode(data: memoryview, head: Head, segment: str) -> list[Entry]:
    """The entries of a sound block. Raises JournalBroken when they are not what this Holdfast knows."""
    try:
        return _decoder.decode(data[head.offset + HEAD_BYTES : head.end])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalBroken(
            f"{segment}, offset {head.offset}: block {head.lsn} is whole, but not what this Holdfast writes: {error}"
        ) from None


def read_block(data: bytes | memoryview, seed: bytes, segment: str, offset: int) -> Block:
    """The one block in these bytes, which were read at this place. Raises JournalBroken when they are none."""
    view = memoryview(data)
    head = head_at(view, 0, seed, offset)
    if head is None or not is_sound(view, head):
        raise JournalBroken(f"{segment}, offset {offset}: no block")
    return Block(head.lsn, decode(view, head, segment), segment, offset, head.end)
