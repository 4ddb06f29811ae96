"""The bytes of a journal: segments of blocks. A block is one group of entries, and all blocks form one chain.

A segment `j<first lsn, 12 digits>.seg` begins with a header; blocks follow without gaps. A block is a head of fixed
size and a MessagePack list of entries.

- wire/B-1: The *link* of a block is a digest of its whole head, of its place in the file and of the segment's *seed*;
  the head has the digest of the entries and the link of the block before. The link is verified before the length is
  used, so a damaged length is never followed, and a block is not valid at a place where it was not written.
- wire/B-2: The seed is made of the store, the first lsn of the segment and the link before it. So bytes of another
  store, or of an earlier use of the same file, are not valid blocks; and no outsider can make a block, not even inside
  a value, because the links are unknown outside.
- wire/B-3: `synced` is the last durable block when this block was made. A block is *proved durable* when a later valid
  block or header says so. Unreadable bytes are damage if they are proved durable, and otherwise a torn tail, which is
  cut. So a seal (an empty block) is written after the last block, to prove it.
- wire/B-4: After damage, reading continues at the next valid block, and the damage is reported with it.

Example for wire/B-3: blocks 17 and 18 are written and 17 is synced; then block 19 is written with synced = 17, and the
power fails. If 17 is unreadable after the restart, block 19 proves that it was durable: this is damage. If 19 is
unreadable, no later block says that it was durable: it counts as a torn tail, and is cut.

The digest is MurmurHash3, 128 bits: 8 GB/s a core, twice as fast as `zlib.crc32` on large blocks and on small ones.
Every step of it can be reversed, so two texts that differ only within 16 aligned bytes never have the same digest: no
flipped bit, and no burst within them, is missed. Any other accident has a chance of 2**-128; the 2**-32 of CRC-32 would
be too much for the torn blocks of many machines. It is no defence against an attacker who can write to the directory.
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
"""Formats that this Holdfast reads. They differ in the kinds of entries in blocks."""
ORIGIN = bytes(16)

_HEADER = struct.Struct("<4sHxxQQQ40s16s")
_HEAD = struct.Struct("<4sIQQ16s16s")
_PLACE = struct.Struct("<Q")
_LINK_BYTES = 16
HEADER_BYTES = _HEADER.size + _LINK_BYTES
"""Offset of the first block of a segment."""
HEAD_BYTES = _HEAD.size + _LINK_BYTES
"""Size of a block besides its entries."""
SEAL_BYTES = HEAD_BYTES + 1
"""Size of a block with an empty list of entries."""
BLOCK_BYTES_MAX = 0xFFFF_FFFF
STORE_BYTES_MAX = 40

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[list[Entry]] = msgspec.msgpack.Decoder(list[Entry])

# -- names ------------------------------------------------------------------------------------------------------------


def segment_name(first_lsn: int) -> str:
    return f"j{first_lsn:012}.seg"


def segment_lsn(name: str) -> int | None:
    digits = name[1:-4]
    if not (name.startswith("j") and name.endswith(".seg") and digits.isascii() and digits.isdigit()):
        return None
    lsn = int(digits) if len(digits) <= 20 else 0
    return lsn if lsn and segment_name(lsn) == name else None


def segments(names: Sequence[str]) -> list[str]:
    """The names of segments among these, in the order of the journal."""
    return sorted((name for name in names if segment_lsn(name)), key=lambda name: segment_lsn(name) or 0)


# -- writing ----------------------------------------------------------------------------------------------------------


def seed_of(store: str, first_lsn: int, previous: bytes) -> bytes:
    """The seed of a segment; its first four bytes begin each block."""
    seed = digest(struct.pack("<40sQ16s", store.encode(), first_lsn, previous))
    return bytes([seed[0] | 0x80]) + seed[1:]


def segment_header(
    store: str, first_lsn: int, previous: bytes, synced: int, wall_ms: int, level: int = LOWEST
) -> bytes:
    """`store`: up to 40 bytes of text. `previous`: the link of the last block before, or `ORIGIN`. `synced`:
    the last durable lsn. `wall_ms`: since 1970. `level`: the highest feature level of the content, which
    decides the format.
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
    return digest(seed + _PLACE.pack(offset) + fields)


def encode_block(
    seed: bytes, offset: int, lsn: int, previous: bytes, synced: int, entries: Sequence[Entry]
) -> tuple[bytes, bytes]:
    """A block for this place of its segment, and its link, which is `previous` of the next. No entries: a
    seal.
    """
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
    """Where a writer continues: in a new segment with `Chain(store, end.lsn, end.checksum)`, or, if `resumable`, in the
    same one with `Chain.resume`.
    """

    lsn: int
    checksum: bytes
    segment: str = ""
    """The segment in which the last block ends; "" if there is none."""
    offset: int = 0
    first_lsn: int = 0
    seed: bytes = b""
    """b"" if the last segment was torn or damaged and must not be written any more."""

    @property
    def resumable(self) -> bool:
        """Whether only zeros follow in the last segment, so that it may be continued."""
        return bool(self.seed)


class Place(NamedTuple):
    lsn: int
    checksum: bytes
    synced: int
    first_lsn: int
    """First lsn of the present segment."""
    offset: int
    seed: bytes


class Chain:
    """Writer of a journal: makes segment headers and blocks, one after the other.

    A header must be durable before the first block of its segment is written. Blocks may be written before earlier
    blocks are durable. Before a journal is continued, what was read of its last segment must be synced.
    """

    __slots__ = ("place", "store")

    def __init__(self, store: str, lsn: int = 1, checksum: bytes = ORIGIN) -> None:
        """Begin with this block, in a new segment: call `begin` first. Everything before is durable, or void."""
        self.store = store
        self.place = Place(lsn, checksum, lsn - 1, lsn, 0, b"")
        """Save it before `begin` or `block`, and restore it if their bytes are not written after all."""

    @classmethod
    def resume(cls, store: str, end: End) -> Chain:
        """Continue in the same segment at `end.offset`. Requires `end.resumable`: only zeros are there."""
        assert end.resumable, end
        chain = cls(store)
        chain.place = Place(end.lsn, end.checksum, end.lsn - 1, end.first_lsn, end.offset, end.seed)
        return chain

    @property
    def lsn(self) -> int:
        return self.place.lsn

    @property
    def checksum(self) -> bytes:
        return self.place.checksum

    @property
    def synced(self) -> int:
        """The last durable block, as the next block or header will state."""
        return self.place.synced

    @property
    def first_lsn(self) -> int:
        return self.place.first_lsn

    @property
    def offset(self) -> int:
        return self.place.offset

    @property
    def seed(self) -> bytes:
        return self.place.seed

    @property
    def segment(self) -> str:
        return segment_name(self.place.first_lsn)

    def begin(self, wall_ms: int, level: int = LOWEST) -> bytes:
        """Begin a new segment, named `segment`, with the next block; returns its header. `level`: the highest
        feature level of its content.
        """
        lsn, checksum, synced = self.place[:3]
        self.place = Place(lsn, checksum, synced, lsn, HEADER_BYTES, seed_of(self.store, lsn, checksum))
        return segment_header(self.store, lsn, checksum, synced, wall_ms, level)

    def block(self, entries: Sequence[Entry] = ()) -> bytes:
        """The next block, to be written at the `offset` before this call and nowhere else; no entries: a seal."""
        lsn, checksum, synced, first_lsn, offset, seed = self.place
        data, link = encode_block(seed, offset, lsn, checksum, synced, entries)
        self.place = Place(lsn + 1, link, synced, first_lsn, offset + len(data), seed)
        return data

    def durable(self, lsn: int) -> None:
        """All blocks up to this one are durable."""
        if lsn > self.place.synced:
            self.place = self.place._replace(synced=lsn)


# -- reading: one header, one block -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Header:
    first_lsn: int
    synced: int
    wall_ms: int
    store: str
    previous: bytes
    format: int = 1


@dataclass(frozen=True, slots=True)
class Head:
    """A block whose head is valid: its place, and its fields."""

    offset: int
    end: int
    lsn: int
    synced: int
    previous: bytes
    link: bytes


@dataclass(frozen=True, slots=True)
class Block:
    lsn: int
    entries: list[Entry]
    segment: str
    offset: int
    size: int


def read_header(data: bytes | memoryview) -> Header | None:
    """None if the bytes do not begin with a valid header. Raises NewerFiles if it is valid but of an unknown
    format.
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
    """The head at this offset, if there is a valid one; the entries are not checked. `before`: bytes of the
    segment before `data`.
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
    """Whether the entries of this block are intact."""
    if head.end > len(data):
        return False
    start = head.offset + _HEAD.size
    body = data[head.offset + HEAD_BYTES : head.end]
    return digest(body) == bytes(data[start - _LINK_BYTES : start])


def decode(data: memoryview, head: Head, segment: str) -> list[Entry]:
    """The entries of an intact block. Raises JournalBroken if this Holdfast does not know them."""
    try:
        return _decoder.decode(data[head.offset + HEAD_BYTES : head.end])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalBroken(
            f"{segment}, offset {head.offset}: block {head.lsn} is whole, but not what this Holdfast writes: {error}"
        ) from None


def read_block(data: bytes | memoryview, seed: bytes, segment: str, offset: int) -> Block:
    """Raises JournalBroken if there is no block at this place."""
    view = memoryview(data)
    head = head_at(view, 0, seed, offset)
    if head is None or not is_sound(view, head):
        raise JournalBroken(f"{segment}, offset {offset}: no block")
    return Block(head.lsn, decode(view, head, segment), segment, offset, head.end)
