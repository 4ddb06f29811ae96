"""Entries in columns: the memory layout of Arrow's variable-size binary arrays.

A client may use the bytes in place, and a member needs only `bytes.join`.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, islice, pairwise
from operator import le

import msgspec

from holdfast.errors import ProtocolError, TooLarge

_INT32 = "i"
assert array(_INT32).itemsize == 4, "offsets are int32"
_BIG_ENDIAN = array(_INT32, [1]).tobytes()[0] == 0


class ColumnBatch(msgspec.Struct, frozen=True, array_like=True):
    """Entries in two columns. Keys and values are in their stored form: type id and payload, no hash word.

    The cell of row `r` is `column[offsets[r] : offsets[r + 1]]`; offsets are little-endian int32, one more than there
    are rows.
    """

    rows: int
    key_offsets: bytes
    keys: bytes
    value_offsets: bytes
    values: bytes

    @classmethod
    def of(cls, keys: list[bytes], values: list[bytes]) -> ColumnBatch:
        assert len(keys) == len(values), (len(keys), len(values))
        return cls(len(keys), _offsets(keys), b"".join(keys), _offsets(values), b"".join(values))

    def split(self) -> tuple[list[bytes], list[bytes]]:
        """All keys, and all values. Raises ProtocolError when the offsets do not fit the columns."""
        return self.split_keys(), self.split_values()

    def split_keys(self) -> list[bytes]:
        """Raises ProtocolError when the offsets do not fit the column, like `split_values`."""
        return _cut(self.rows, self.key_offsets, self.keys)

    def split_values(self) -> list[bytes]:
        return _cut(self.rows, self.value_offsets, self.values)

    @property
    def size_bytes(self) -> int:
        return len(self.keys) + len(self.values)


def _offsets(cells: list[bytes]) -> bytes:
    ends = list(accumulate(map(len, cells), initial=0))
    if ends[-1] > 0x7FFF_FFFF:
        raise TooLarge(f"a column of {ends[-1]} bytes; the most is 2 GiB. Send fewer rows at a time")
    packed = array(_INT32, ends)
    if _BIG_ENDIAN:
        packed.byteswap()
    return packed.tobytes()


def _cut(rows: int, offsets: bytes, blob: bytes) -> list[bytes]:
    if rows < 0 or len(offsets) != 4 * (rows + 1):
        raise ProtocolError(f"{rows} rows with {len(offsets)} bytes of offsets")
    ends = array(_INT32, offsets)
    if _BIG_ENDIAN:
        ends.byteswap()
    if ends[0] != 0 or ends[-1] != len(blob) or not all(map(le, ends, islice(ends, 1, None))):
        raise ProtocolError("the offsets of a column do not fit its bytes")
    return [blob[start:end] for start, end in pairwise(ends)]
